//! Every configuration key has an effect in the running program: a table names the test that proves
//! it for each key.
//!
//! A test counts if it runs the program with two values of the key, or with one that is not the
//! default, and observes a request, an event, a file, an output, a decision or a refused start.

mod contexts;
mod delegation;
mod providers;
mod sessions;
mod terminal;
mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::model_server::{ModelAnswer, ModelServer, calls, says};
use crate::posse::{Machine, side_by_side};

/// Keys with the tests that prove their effect: file in `tests/it`, name of the test.
#[rustfmt::skip]
const PROOFS: &[(&str, &str, &str)] = &[
    ("agentMode", "every_setting/delegation.rs", "every_key_of_the_mode_brings_subagents"),
    ("agents", "every_setting/sessions.rs", "keys_of_agents_and_skills_change_requests"),
    ("budget.maxCostMicroUsd", "every_setting/sessions.rs", "budget_and_time_limit_end_a_run"),
    ("budget.maxTokens", "ledger.rs", "token_budget_limits_the_reply_length"),
    ("checkpoints.enabled", "checkpoints.rs", "settings_of_the_user_turn_checkpoints_off_and_limit_them"),
    ("checkpoints.keepDays", "every_setting/sessions.rs", "old_or_large_checkpoints_are_removed"),
    ("checkpoints.maxFileBytes", "checkpoints.rs", "settings_of_the_user_turn_checkpoints_off_and_limit_them"),
    ("checkpoints.maxStoreBytes", "every_setting/sessions.rs", "old_or_large_checkpoints_are_removed"),
    ("context.main.compactAtRatio", "every_setting/contexts.rs", "keys_of_the_main_context_change_its_requests"),
    ("context.main.compression", "every_setting/contexts.rs", "keys_of_the_main_context_change_its_requests"),
    ("context.main.keepRawDelegateResults", "every_setting/contexts.rs", "keys_of_the_ledger_change_requests"),
    ("context.main.ledgerTargetTokens", "every_setting/contexts.rs", "keys_of_the_ledger_change_requests"),
    ("context.main.maxContextTokens", "every_setting/contexts.rs", "keys_of_the_main_context_change_its_requests"),
    ("context.main.maxDelegateResultTokens", "every_setting/contexts.rs", "keys_of_the_hand_off_change_requests"),
    ("context.main.maxInlineToolResultTokens", "every_setting/contexts.rs", "large_results_are_removed_after_a_rejection"),
    ("context.main.minRecentTurns", "every_setting/contexts.rs", "keys_of_the_main_context_change_its_requests"),
    ("context.main.recentTurns", "every_setting/contexts.rs", "keys_of_the_main_context_change_its_requests"),
    ("context.main.summaryTargetTokens", "every_setting/contexts.rs", "keys_of_the_main_context_change_its_requests"),
    ("context.subAgent.compactAtRatio", "every_setting/contexts.rs", "keys_of_the_context_of_subagents_change_their_requests"),
    ("context.subAgent.compression", "every_setting/contexts.rs", "keys_of_the_context_of_subagents_change_their_requests"),
    ("context.subAgent.maxContextTokens", "every_setting/contexts.rs", "keys_of_the_context_of_subagents_change_their_requests"),
    ("context.subAgent.maxDelegateContextTokens", "every_setting/contexts.rs", "keys_of_the_hand_off_change_requests"),
    ("context.subAgent.maxHandoffTokens", "every_setting/contexts.rs", "keys_of_the_hand_off_change_requests"),
    ("context.subAgent.maxResultTokensToMain", "every_setting/contexts.rs", "keys_of_the_hand_off_change_requests"),
    ("context.subAgent.memoryScope", "every_setting/contexts.rs", "keys_of_the_hand_off_change_requests"),
    ("context.subAgent.minRecentTurns", "every_setting/contexts.rs", "keys_of_the_context_of_subagents_change_their_requests"),
    ("context.subAgent.recentTurns", "every_setting/contexts.rs", "keys_of_the_context_of_subagents_change_their_requests"),
    ("context.subAgent.summaryTargetTokens", "every_setting/contexts.rs", "keys_of_the_context_of_subagents_change_their_requests"),
    ("defaultAgent", "every_setting/sessions.rs", "keys_of_agents_and_skills_change_requests"),
    ("defaultProvider", "every_setting/providers.rs", "keys_that_choose_the_model_change_requests"),
    ("delegation.defaultInvocationDecision", "every_setting/delegation.rs", "limits_of_delegation_change_results"),
    ("delegation.maxConcurrent", "every_setting/delegation.rs", "number_of_concurrent_subagents_is_limited"),
    ("delegation.maxCostMicroUsd", "every_setting/delegation.rs", "limits_of_delegation_change_results"),
    ("delegation.maxDepth", "system_prompt.rs", "agents_are_listed_only_if_one_can_be_called"),
    ("delegation.maxDurationSeconds", "every_setting/delegation.rs", "subagent_ends_at_its_time_limit"),
    ("delegation.maxTokens", "every_setting/delegation.rs", "limits_of_delegation_change_results"),
    ("delegation.maxTotal", "every_setting/delegation.rs", "limits_of_delegation_change_results"),
    ("delegation.subInvocationMaxTurns", "every_setting/delegation.rs", "limits_of_delegation_change_results"),
    ("hooks", "hooks.rs", "every_event_reaches_its_hooks_in_order"),
    ("maxTurns", "every_setting/sessions.rs", "budget_and_time_limit_end_a_run"),
    ("mode", "every_setting/delegation.rs", "every_key_of_the_mode_brings_subagents"),
    ("model", "every_setting/providers.rs", "keys_that_choose_the_model_change_requests"),
    ("models.*.cacheWritePrice", "ledger.rs", "broken_reply_costs_its_reported_usage"),
    ("models.*.cachedInputPrice", "ledger.rs", "broken_reply_costs_its_reported_usage"),
    ("models.*.contextWindow", "context.rs", "prompt_above_the_window_is_refused_before_it_is_sent"),
    ("models.*.inputPrice", "turns.rs", "known_price_reports_the_cost"),
    ("models.*.maxOutputTokens", "every_setting/providers.rs", "output_limit_of_the_model_is_sent_by_messages"),
    ("models.*.outputPrice", "turns.rs", "known_price_reports_the_cost"),
    ("models.*.reasoning", "skills.rs", "thinking_level_is_sent_where_supported"),
    ("models.*.tools", "settings.rs", "model_without_tools_gets_none"),
    ("models.*.vision", "files.rs", "model_without_image_input_is_sent_no_image"),
    ("multiAgent.enabled", "every_setting/delegation.rs", "every_key_of_the_mode_brings_subagents"),
    ("multimodal.detail", "every_setting/sessions.rs", "keys_of_images_change_requests"),
    ("multimodal.maxImageBytes", "every_setting/sessions.rs", "keys_of_images_change_requests"),
    ("network.allowedDomains", "network_by_domain.rs", "programs_reach_listed_domains_and_are_told_about_others"),
    ("network.blockedDomains", "network_by_domain.rs", "no_way_leads_out_but_to_listed_domains"),
    ("network.uploadLimitBytes", "network_by_domain.rs", "a_person_decides_about_more_upload"),
    ("notify.command", "tui/attention.rs", "users_command_gets_the_event_and_its_failure_is_one_warning"),
    ("notify.method", "tui/attention.rs", "tmux_gets_the_sequence_that_the_user_chose"),
    ("notify.title", "every_setting/terminal.rs", "window_title_can_be_left_alone"),
    ("notify.when", "tui/attention.rs", "run_and_line_mode_notify_at_a_terminal"),
    ("patience", "provider_faults.rs", "exhausted_patience_parks_with_the_next_attempt"),
    ("permissionMode", "permission_modes.rs", "each_mode_asks_and_changes_what_it_says"),
    ("permissions", "permission.rs", "suggested_rule_allows_the_call"),
    ("persistentGrants.enabled", "persistent_grants.rs", "disabled_grant_storage_stores_nothing"),
    ("persistentGrants.scope", "persistent_grants.rs", "disabled_grant_storage_stores_nothing"),
    ("persistentGrants.ttlMs", "persistent_grants.rs", "disabled_grant_storage_stores_nothing"),
    ("providers.*.apiKey", "every_setting/providers.rs", "keys_of_headers_are_sent"),
    ("providers.*.apiKeyEnv", "every_setting/providers.rs", "keys_of_headers_are_sent"),
    ("providers.*.auth", "every_setting/providers.rs", "keys_of_headers_are_sent"),
    ("providers.*.baseURL", "configuring.rs", "saved_choice_applies_only_where_defined"),
    ("providers.*.contextWindow", "every_setting/providers.rs", "keys_of_the_profile_change_requests"),
    ("providers.*.fallback", "provider_faults.rs", "failover_is_reported"),
    ("providers.*.headers", "every_setting/providers.rs", "keys_of_headers_are_sent"),
    ("providers.*.maxTokens", "every_setting/providers.rs", "keys_of_the_profile_change_requests"),
    ("providers.*.model", "every_setting/providers.rs", "keys_of_the_profile_change_requests"),
    ("providers.*.patience", "every_setting/providers.rs", "waits_for_a_provider_are_those_of_its_keys"),
    ("providers.*.quirks", "every_setting/providers.rs", "keys_of_the_profile_change_requests"),
    ("providers.*.temperature", "settings.rs", "temperature_of_profile_and_agent_is_sent"),
    ("providers.*.timeouts.connect", "every_setting/providers.rs", "timeouts_end_an_attempt"),
    ("providers.*.timeouts.firstByte", "every_setting/providers.rs", "timeouts_end_an_attempt"),
    ("providers.*.timeouts.idle", "every_setting/providers.rs", "timeouts_end_an_attempt"),
    ("providers.*.timeouts.silence", "every_setting/providers.rs", "timeouts_end_an_attempt"),
    ("providers.*.type", "every_setting/providers.rs", "output_limit_of_the_model_is_sent_by_messages"),
    ("retry.baseDelay", "every_setting/providers.rs", "waits_for_a_provider_are_those_of_its_keys"),
    ("retry.maxAttempts", "provider_faults.rs", "spent_attempts_are_named_in_the_error_and_in_the_last_event"),
    ("retry.maxDelay", "every_setting/providers.rs", "waits_for_a_provider_are_those_of_its_keys"),
    ("roles.*.model", "skills.rs", "role_model_serves_an_agent_with_its_own_model"),
    ("roles.*.profile", "context.rs", "title_role_names_the_session_in_lists"),
    ("roles.*.thinking", "skills.rs", "role_model_serves_an_agent_with_its_own_model"),
    ("sandbox.mode", "every_setting/tools.rs", "keys_of_the_sandbox_change_results"),
    ("sandbox.network", "every_setting/tools.rs", "keys_of_the_sandbox_change_results"),
    ("sandbox.readSecrets", "every_setting/tools.rs", "keys_of_the_sandbox_change_results"),
    ("sandbox.required", "confining.rs", "weaker_than_required_sandbox_exits_with_7_before_any_request"),
    ("sandbox.writableRoots", "every_setting/tools.rs", "keys_of_the_sandbox_change_results"),
    ("skills.disabled", "every_setting/sessions.rs", "keys_of_agents_and_skills_change_requests"),
    ("skills.enabled", "every_setting/sessions.rs", "keys_of_agents_and_skills_change_requests"),
    ("skills.folders", "every_setting/sessions.rs", "keys_of_agents_and_skills_change_requests"),
    ("streaming.enabled", "every_setting/providers.rs", "keys_that_choose_the_model_change_requests"),
    ("thinking", "every_setting/providers.rs", "keys_that_choose_the_model_change_requests"),
    ("timeout", "every_setting/sessions.rs", "budget_and_time_limit_end_a_run"),
    ("tools.bash.jobs", "jobs.rs", "number_of_jobs_is_limited"),
    ("tools.bash.maxTimeout", "every_setting/tools.rs", "keys_of_tools_change_results"),
    ("tools.bash.timeout", "jobs.rs", "command_is_ended_at_the_default_limit_if_no_job_may_run"),
    ("tools.budgets.*.max", "every_setting/tools.rs", "keys_of_tools_change_results"),
    ("tools.budgets.*.onExceed", "every_setting/tools.rs", "keys_of_tools_change_results"),
    ("tools.edit.fuzzy", "every_setting/tools.rs", "keys_of_tools_change_results"),
    ("tools.edit.requireRead", "every_setting/tools.rs", "keys_of_tools_change_results"),
    ("tools.maxParallel", "every_setting/tools.rs", "number_of_parallel_calls_is_limited"),
    ("tools.outputBudget", "every_setting/tools.rs", "keys_of_tools_change_results"),
    ("tools.parallel", "settings.rs", "parallel_tools_can_be_switched_off_or_extended_to_side_effects"),
    ("tools.read.dedup", "every_setting/tools.rs", "keys_of_tools_change_results"),
    ("ui.alternateScreen", "tui/ending.rs", "alternate_screen_is_scrolled_and_left"),
    ("ui.history", "plain.rs", "history_can_be_disabled"),
    ("ui.keybindings", "every_setting/terminal.rs", "bound_key_submits"),
    ("ui.queue.followUp", "every_setting/sessions.rs", "queued_messages_are_delivered_one_by_one_or_together"),
    ("ui.queue.steering", "every_setting/sessions.rs", "queued_messages_are_delivered_one_by_one_or_together"),
    ("ui.showThinking", "every_setting/terminal.rs", "thinking_is_shown_or_hidden"),
    ("ui.statusLine", "every_setting/terminal.rs", "status_line_command_of_the_user_is_shown"),
    ("ui.theme", "every_setting/terminal.rs", "theme_changes_the_colours"),
    ("ui.vim", "every_setting/terminal.rs", "vim_keys_and_a_changed_key_work_in_a_terminal"),
    ("version", "cli.rs", "every_configuration_error_has_its_code"),
    ("workspace.roots", "settings.rs", "configured_roots_extend_the_workspace"),
];

/// Names of all keys, from the schema that the program prints.
fn keys() -> BTreeSet<String> {
    fn walk(schema: &Value, path: &str, keys: &mut BTreeSet<String>) {
        let join =
            |name: &str| if path.is_empty() { name.into() } else { format!("{path}.{name}") };
        let is_group = schema["additionalProperties"] == false
            || schema["additionalProperties"]["properties"].is_object();
        if !is_group {
            keys.insert(path.to_owned());
            return;
        }
        for (name, member) in schema["properties"].as_object().into_iter().flatten() {
            if name != "$schema" {
                walk(member, &join(name), keys);
            }
        }
        if schema["additionalProperties"].is_object() {
            walk(&schema["additionalProperties"], &join("*"), keys);
        }
    }
    let printed = Machine::new().posse(&["config", "schema"]);
    printed.assert_code(0);
    let mut keys = BTreeSet::new();
    walk(&serde_json::from_str(&printed.stdout).unwrap(), "", &mut keys);
    keys
}

/// Functions of a file, by name, with their texts; whether each is a test.
fn functions(text: &str) -> BTreeMap<String, (bool, String)> {
    let mut functions = BTreeMap::new();
    let lines: Vec<&str> = text.lines().collect();
    let mut is_test = false;
    for (at, line) in lines.iter().enumerate() {
        is_test |= line.trim() == "#[test]";
        let code = line.trim_start();
        let Some(name) = code.trim_start_matches("pub(crate) ").strip_prefix("fn ") else {
            continue;
        };
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let length = lines[at..].iter().position(|line| *line == end).unwrap_or(0);
        functions.insert(name, (is_test, lines[at..=at + length].join("\n")));
        is_test = false;
    }
    functions
}

/// Text of the test `name` and of the functions of its file that it calls.
fn text_of_test(file: &str, name: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(file);
    let functions = functions(&fs::read_to_string(path).ok()?);
    let (is_test, text) = functions.get(name)?;
    let mut whole = is_test.then(|| text.clone())?;
    let mut added = BTreeSet::from([name]);
    while let Some((called, (_, text))) = functions.iter().find(|(called, (is_test, _))| {
        !is_test && !added.contains(called.as_str()) && whole.contains(&format!("{called}("))
    }) {
        added.insert(called);
        whole.push_str(text);
    }
    Some(whole)
}

#[test]
fn every_key_is_proved_to_act_by_a_test() {
    let mut unproved = keys();
    assert!(unproved.len() > 100, "{unproved:?}");
    let mut wrong = Vec::new();
    for (key, file, test) in PROOFS {
        if !unproved.remove(*key) {
            wrong.push(format!("{key}: there is no such key, or it has two rows"));
        }
        let Some(text) = text_of_test(file, test) else {
            wrong.push(format!("{key}: there is no test {test} in {file}"));
            continue;
        };
        let names = key.split('.').filter(|name| !["*", "providers", "models"].contains(name));
        for name in names {
            let is_named = |quote: &str| text.contains(&format!("{quote}{name}"));
            if !["\"", ".", "\\\""].into_iter().any(is_named) {
                wrong.push(format!("{key}: the test {test} does not mention {name}"));
            }
        }
    }
    wrong.extend(unproved.into_iter().map(|key| format!("{key}: no test proves its effect")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A scripted task, run with different settings.
struct Scenario {
    answers: fn() -> Vec<ModelAnswer>,
    /// Prepares the machine: files of the workspace and agents.
    prepare: fn(&Machine),
    /// Command lines, one after the other.
    runs: &'static [&'static [&'static str]],
    /// True if the system prompt and the descriptions of tools do not count: what is only announced
    /// is no effect.
    acts: bool,
}

/// A task with one answer.
const GREETING: Scenario = Scenario {
    answers: || vec![says("hello")],
    prepare: |_| {},
    runs: &[&["run", "say hello"]],
    acts: false,
};

/// Sets the key with the dotted name `key` in `settings`.
fn with(settings: &Value, key: &str, value: &Value) -> Value {
    let mut settings = settings.clone();
    let place = key.split('.').fold(&mut settings, |object, name| &mut object[name]);
    *place = value.clone();
    settings
}

/// Exit codes, answers and requests of a scenario, without what differs in each run. Members of
/// `settings` replace those of the machine; those of `profile` belong to the provider.
fn observed(scenario: &Scenario, settings: &Value) -> String {
    let server = ModelServer::start((scenario.answers)());
    let mut settings = settings.clone();
    let profile = match settings.as_object_mut().unwrap().remove("profile") {
        Some(profile) => profile,
        None => json!({}),
    };
    let machine = Machine::configured(&server, &settings, &profile);
    (scenario.prepare)(&machine);
    let mut text = String::new();
    for args in scenario.runs {
        let ended = machine.posse(args);
        assert!(!ended.stderr.contains("error[CFG"), "{}", ended.stderr);
        text.push_str(&format!("{:?} {}\n", ended.code, ended.stdout));
    }
    for mut request in server.requests() {
        let body = request.as_object_mut().unwrap();
        body.remove("prompt_cache_key");
        if scenario.acts {
            body.remove("tools");
            body["messages"].as_array_mut().unwrap().retain(|one| one["role"] != "system");
        }
        text.push_str(&format!("{request}\n"));
    }
    plain(&text.replace(&machine.path("").display().to_string(), "/machine/"))
}

/// Text without ids, which are random or contain a time, and durations: `20261122-050845-a4981d`
/// (session), `cb47808-4` (call), `i46be1b-3` (invocation), `25 ms`.
fn plain(text: &str) -> String {
    const SESSION: &str = "dddddddd-dddddd-xxxxxx";
    let fits = |bytes: &[u8], pattern: &str| {
        bytes.len() >= pattern.len()
            && bytes.iter().zip(pattern.bytes()).all(|(byte, wanted)| match wanted {
                b'd' => byte.is_ascii_digit(),
                b'x' => byte.is_ascii_hexdigit(),
                b'?' => matches!(byte, b'c' | b'i'),
                wanted => *byte == wanted,
            })
    };
    let mut bytes = text.as_bytes().to_vec();
    for at in 0..bytes.len() {
        if fits(&bytes[at..], SESSION) {
            bytes[at..at + SESSION.len()].fill(b'#');
        } else if fits(&bytes[at..], "?xxxxxx-") {
            bytes[at + 1..at + 7].fill(b'#');
        } else if fits(&bytes[at..], " ms") {
            let digits = bytes[..at].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            bytes[at - digits..at].fill(b'#');
        }
    }
    // The number of digits of a duration differs.
    let mut text = String::from_utf8(bytes).unwrap();
    while text.contains("## ms") {
        text = text.replace("## ms", "# ms");
    }
    text
}

/// Fails unless the scenario is observed to be different with each of these values, set one at a
/// time, and the same without a change.
#[track_caller]
fn assert_each_changes(scenario: &Scenario, base: &Value, rows: &[(&str, Value)]) {
    let before = observed(scenario, base);
    let same = observed(scenario, base);
    assert!(before == same, "it differs without a change: {}", first_difference(&before, &same));
    side_by_side(rows, |(key, value)| {
        let after = observed(scenario, &with(base, key, value));
        assert_ne!(after, before, "{key} = {value} changes nothing");
    });
}

/// Both texts from shortly before the first byte that differs.
fn first_difference(one: &str, other: &str) -> String {
    let same = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let part = |text: &str| {
        let bytes = &text.as_bytes()[same.saturating_sub(100)..text.len().min(same + 200)];
        String::from_utf8_lossy(bytes).into_owned()
    };
    format!("{}\n{}", part(one), part(other))
}

/// A call that starts a subagent and waits for it.
fn delegates(agent: &str, task: &str) -> ModelAnswer {
    calls(&[("delegate_agent", json!({"agent": agent, "task": task}))])
}
