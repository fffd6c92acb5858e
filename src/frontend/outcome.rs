//! Maps the outcome of a prompt to an exit code, a reason and an error message. Pure.

use crate::pluralize;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use posse_actors::cost::{BudgetRefusal, dollars};
use posse_actors::event::{PermissionMode, SessionEndReason};
use posse_actors::outcome::{ATTEMPTS_SPENT, Ending, limit_text};
use posse_actors::root_session::TurnOutcome;
use posse_base::failure::{ErrorCode, Exit, Failure};

/// Part of the cause of a failure that names a timeout of a silent server.
const SLOW_SERVER: &str = "timeouts.";

/// Advice at the end of the cause of an error about an unknown path.
const WRONG_PATH: &str = "check `type` and `baseURL`";

/// Remark at the end of the cause of an error about tools that the server does not accept.
const NO_TOOLS: &str = "does not pass tools on";

/// Final result of a run: exit code, reason of the end, answer and error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Exit code of the process.
    pub exit: Exit,
    /// Reason in the last event of the session.
    pub reason: SessionEndReason,
    /// Final answer or, after [`Ending::Limited`], the last text of the model, if it wrote any.
    /// `None` for other endings, also if the budget is used up.
    pub result: Option<String>,
    /// Error to print; `None` if the run succeeded or was interrupted.
    pub failure: Option<Failure>,
}

/// Ways to permit calls that the user has already used (`--yes`) or seen (an allow rule). The
/// advice in an error depends on them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PermissionHints {
    /// True if `--yes` was given.
    pub yes: bool,
    /// True if an allow rule for a denied call was shown.
    pub rule: bool,
    /// True if a command was denied because it needs the network, which the run does not have.
    pub network: bool,
    /// Permission mode of the session. `None`: unknown.
    pub mode: Option<PermissionMode>,
}

/// Label for the end of a run, in one to four words.
pub fn label(ending: &Ending) -> &'static str {
    match ending {
        Ending::Answered(_) => "done",
        Ending::Limited { .. } | Ending::OverBudget(_) => "stopped at a limit",
        Ending::Failed { class, .. } if class == "parked" => "parked",
        Ending::Failed { .. } => "failed",
        Ending::Parked { .. } => "parked",
        Ending::Interrupted => "stopped",
    }
}

/// Maps the outcome of a prompt to its verdict. `outcome`: `None` if the session ended
/// unexpectedly. `signal`: exit code of the signal that stopped the run, if one did.
pub fn judge(
    outcome: Option<&TurnOutcome>,
    signal: Option<Exit>,
    advised: PermissionHints,
) -> Verdict {
    let Some(outcome) = outcome else {
        let failure = Failure::new(
            ErrorCode::SessionEndedUnexpectedly,
            Exit::Internal,
            "the session ended unexpectedly",
        )
        .fix("run `posse sessions verify` and report the result");
        return failed(SessionEndReason::Failed, failure, None);
    };
    match &outcome.ending {
        Ending::Answered(answer) if outcome.unanswered == 0 => Verdict {
            exit: Exit::Done,
            reason: SessionEndReason::Completed,
            result: Some(answer.clone()),
            failure: None,
        },
        Ending::Answered(answer) => {
            let count = outcome.unanswered;
            let requests = pluralize(count.into(), "permission request");
            let what = format!("{requests} denied: no user could be asked");
            let failure = Failure::new(ErrorCode::PermissionUnanswered, Exit::Permission, what)
                .fix(missing(outcome, advised));
            failed(SessionEndReason::Permission, failure, Some(answer.clone()))
        }
        Ending::Limited { limit, value, said } => limited(limit, *value, said.clone()),
        Ending::OverBudget(refused) => over_budget(refused),
        Ending::Failed { class, cause } => class_failed(class, cause),
        Ending::Parked { class, cause, next_try_ms } => parked(class, cause, *next_try_ms),
        Ending::Interrupted => {
            let exit = signal.unwrap_or(Exit::Interrupt);
            Verdict { exit, reason: SessionEndReason::Interrupted, result: None, failure: None }
        }
    }
}

/// Returns the advice for an error with this cause: `usual`, unless the cause says that too many
/// files are open.
fn fix_for(cause: &str, usual: String) -> String {
    if cause.contains("Too many open files") {
        return "raise the limit of open files (`ulimit -n 1024`), then run `posse resume`"
            .to_owned();
    }
    usual
}

/// Error for an answer that could not be written to standard output.
pub fn output_error(cause: String) -> Failure {
    Failure::new(ErrorCode::AnswerOutput, Exit::Failed, "the answer could not be written")
        .because(cause)
}

/// Advice for permission requests that were denied because no user could be asked. It names only
/// options that would have allowed the requests.
fn missing(outcome: &TurnOutcome, advised: PermissionHints) -> String {
    let count = outcome.unanswered;
    // With `--yes`, the requests that it covers were allowed.
    let uncovered = if advised.yes { count } else { outcome.not_by_yes.min(count) };
    if uncovered == 0 {
        let is_strict = matches!(advised.mode, Some(PermissionMode::Ask | PermissionMode::Edits));
        let mut ways = vec!["run it in a terminal"];
        ways.extend(is_strict.then_some("pass `--permission-mode auto`, which asks about less"));
        ways.push("pass `--yes`");
        ways.extend(advised.rule.then_some("add the rule shown above"));
        let last = ways.pop().unwrap_or_default();
        let network = if advised.network {
            "; for the network, list the domains in `network.allowedDomains` and pass \
             `--network ask` as well"
        } else {
            ""
        };
        return format!("{}, or {last}{network}", ways.join(", "));
    }
    let which = if uncovered == count { "it".to_owned() } else { format!("{uncovered} of them") };
    let without = if advised.yes { " without `--yes`" } else { "" };
    format!(
        "run it in a terminal{without} and answer there: `--yes` does not cover {which}. It never \
         covers protected files and secrets, and covers commands without a sandbox only together \
         with `--sandbox off`"
    )
}

fn failed(reason: SessionEndReason, failure: Failure, result: Option<String>) -> Verdict {
    Verdict { exit: failure.exit, reason, result, failure: Some(failure) }
}

fn limited(limit: &str, value: u64, said: Option<String>) -> Verdict {
    let (exit, what, fix) = match limit {
        "timeout" => (
            Exit::Timeout,
            format!("the run took longer than {value} s"),
            "raise it with `--timeout`",
        ),
        "maxTokens" => (
            Exit::Limit,
            limit_text(limit, value),
            "raise `providers.NAME.maxTokens`, use a model that writes longer replies, or ask for \
             smaller steps",
        ),
        _ => (
            Exit::Limit,
            match value {
                1 => "the limit of one model reply was reached".to_owned(),
                _ => format!("the limit of {value} model replies was reached"),
            },
            "raise the lowest of `--max-turns`, `maxTurns` and the limit of the agent or its mode",
        ),
    };
    let failure = Failure::new(ErrorCode::LimitReached, exit, what).fix(fix);
    failed(SessionEndReason::Limit, failure, said)
}

fn over_budget(refused: &BudgetRefusal) -> Verdict {
    let is_money = refused.limit == BudgetRefusal::MONEY;
    let amount = |amount: u64| {
        if is_money { dollars(amount) } else { format!("{amount} tokens") }
    };
    let what = format!("the budget of {} is too small for another request", amount(refused.cap));
    let why = format!(
        "{} are spent, {} are left, and the request needs up to {}",
        amount(refused.spent),
        amount(refused.left()),
        amount(refused.needed)
    );
    let raise = if is_money {
        "raise it with `--budget` or `budget.maxCostMicroUsd`"
    } else {
        "raise it with `budget.maxTokens`"
    };
    let fix = format!("{raise}; `posse sessions show ID --cost` shows what used it");
    let failure = Failure::new(ErrorCode::BudgetReached, Exit::Limit, what).because(why).fix(fix);
    failed(SessionEndReason::Limit, failure, None)
}

/// Verdict for a run that was parked because the patience ran out or the attempts are spent. `next_try_ms`: earliest time of
/// a retry, in milliseconds since 1970, if known.
fn parked(class: &str, cause: &str, next_try_ms: Option<u64>) -> Verdict {
    let what = match (class, next_try_ms) {
        ("provider.unreachable", None) => {
            "no server answers at the address of the provider; the run is parked"
        }
        _ if cause.contains(ATTEMPTS_SPENT) => {
            "the provider failed in all permitted attempts; the run is parked"
        }
        ("provider.quota", _) => "the quota of the provider is used up; the run is parked",
        _ => "the provider was unavailable for too long; the run is parked",
    };
    let fix = match (class, next_try_ms) {
        _ if cause.contains(SLOW_SERVER) => slow_server_fix(),
        ("provider.unreachable", None) => {
            "follow the cause above, then continue with `posse resume`; with `--unattended`, or a \
             `patience` in the configuration, posse waits for the server"
                .to_owned()
        }
        (_, Some(at)) if cause.contains(ATTEMPTS_SPENT) => format!(
            "retry after {}; a larger `retry.maxAttempts` retries more often; \
             `providers.NAME.fallback` uses another one meanwhile",
            clock_time(at)
        ),
        (_, Some(at)) => format!(
            "retry after {}; `--unattended` or a longer `patience` waits longer; \
             `providers.NAME.fallback` uses another one meanwhile",
            clock_time(at)
        ),
        (_, None) => {
            "the provider does not say when to retry: look at your account there, then continue \
             with `posse resume`; `providers.NAME.fallback` uses another one meanwhile"
                .to_owned()
        }
    };
    let failure = Failure::new(ErrorCode::ProviderUnavailable, Exit::Provider, what)
        .because(cause)
        .fix(fix_for(cause, fix));
    failed(SessionEndReason::Parked, failure, None)
}

/// Advice for a server that needs longer for its first byte than the timeouts allow.
fn slow_server_fix() -> String {
    "if the server is only slow, for example with a long prompt, raise \
     `providers.NAME.timeouts.firstByte` and `timeouts.silence`; otherwise restart it, then \
     continue with `posse resume`"
        .to_owned()
}

/// Formats a time in milliseconds since 1970 as local date and time, such as `2026-11-26 23:10:00`.
/// A time out of range becomes `an unknown time`.
pub fn clock_time(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let Some(at) = at else { return "an unknown time".to_owned() };
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

fn class_failed(class: &str, cause: &str) -> Verdict {
    if let Some(class) = class.strip_prefix("provider.").filter(|class| *class != "filtered") {
        return provider_failed(class, cause);
    }
    let (code, exit, what, fix) = match class {
        "content_filter" | "provider.filtered" => (
            ErrorCode::ReplyWithheld,
            Exit::Failed,
            "the provider withheld the reply",
            "rephrase the prompt, or use another model",
        ),
        "loop" => (
            ErrorCode::LoopDetected,
            Exit::Failed,
            "the model kept making the same failing call",
            "check the call above, and tell the model what to do instead",
        ),
        "hook" => (
            ErrorCode::HookEndedRun,
            Exit::Failed,
            "a hook ended the run",
            "follow its message, or check `hooks` in `posse config show --origin`",
        ),
        "journal" => (
            ErrorCode::JournalUnwritable,
            Exit::Session,
            "the journal cannot be written, so the run was stopped",
            "free space on the disk of the state directory",
        ),
        _ => (
            ErrorCode::ComponentCrashed,
            Exit::Internal,
            "an internal component crashed too often",
            "report it with the journal; all recorded data is kept",
        ),
    };
    let fix = fix_for(cause, fix.to_owned());
    let failure = Failure::new(code, exit, what).because(cause).fix(fix);
    let parked = exit == Exit::Internal;
    failed(if parked { SessionEndReason::Parked } else { SessionEndReason::Failed }, failure, None)
}

fn provider_failed(class: &str, cause: &str) -> Verdict {
    let (code, exit, what, fix) = match class {
        _ if cause.contains(PLAIN_HTTP) => plain_http(),
        "rejected" if cause.contains(WRONG_PATH) => wrong_path(),
        "rejected" if cause.contains(NO_TOOLS) => without_tools(),
        "empty_reply" | "broken_reply" => no_usable_reply(class),
        "repeating_reply" => endless_reply(),
        "unauthorized" => (
            ErrorCode::CredentialsRejected,
            Exit::Configuration,
            "the provider does not accept the credentials",
            // The cause names the login command if the provider uses one.
            if cause.contains("`codex login`") {
                "log in with `codex login`, then run `posse resume`"
            } else {
                "check the key of this provider; `posse config show --origin` says where it comes from"
            },
        ),
        "rejected" if is_history_error(cause) => rejected_history(),
        "rejected" => (
            ErrorCode::RequestRejected,
            Exit::Failed,
            "the provider did not accept the request",
            "follow the provider's message; a wrong model name and `maxTokens` are common causes. A \
             replayed run needs the recorded prompts, or a new recording (`--record`)",
        ),
        "context_full" => (
            ErrorCode::ContextFull,
            Exit::Failed,
            "the conversation no longer fits the model's context",
            "send less at once (a shorter prompt, or the path of a file instead of its text on \
             standard input), start a new session, or use a model with a larger context (`posse \
             models`; if the window is wrong, set `contextWindow` of the provider); `/context` in `posse plain` shows what uses it",
        ),
        "redirected" => (
            ErrorCode::ProviderRedirected,
            Exit::Failed,
            "the provider redirects to another address; nothing was sent there",
            "log in to the network, or set `baseURL` to the right address",
        ),
        "not_the_provider" => (
            ErrorCode::NotTheProvider,
            Exit::Failed,
            "the server that answered is not the provider",
            "log in to the network, or correct `baseURL` (it often ends with /v1) and `type`",
        ),
        "budget" => (
            ErrorCode::BudgetWithoutPrice,
            Exit::Configuration,
            "a budget is set, but the price of the model is not known",
            "set `inputPrice` and `outputPrice` of the model under `models`",
        ),
        "no_vision" => (
            ErrorCode::ModelWithoutVision,
            Exit::Usage,
            "the model does not accept images; nothing was sent",
            "select a model with image input with `--model`, in `posse plain` with `/model`; or \
             continue without images in a new session, in `posse plain` with `/clear`",
        ),
        _ => (
            ErrorCode::ProviderUnavailable,
            Exit::Provider,
            "the provider could not answer",
            "try again later; the session is kept",
        ),
    };
    let fix = fix_for(cause, fix.to_owned());
    let failure = Failure::new(code, exit, what).because(cause).fix(fix);
    failed(SessionEndReason::Provider, failure, None)
}

/// Code, exit, text and advice of an error.
type ErrorParts = (ErrorCode, Exit, &'static str, &'static str);

/// Part of the error of the TLS library for a server that answers without TLS.
const PLAIN_HTTP: &str = "InvalidContentType";

fn plain_http() -> ErrorParts {
    (
        ErrorCode::RequestRejected,
        Exit::Failed,
        "the server at the address of the provider does not speak https",
        "begin `baseURL` with http:// if it is a server of your own; otherwise correct its port",
    )
}

fn wrong_path() -> ErrorParts {
    (
        ErrorCode::RequestRejected,
        Exit::Failed,
        "the provider does not know the path of the request",
        "correct `type` (the protocol) and `baseURL` of the provider, which often ends with /v1; \
         `posse config show --origin` says where they are set",
    )
}

fn rejected_history() -> ErrorParts {
    (
        ErrorCode::HistoryRejected,
        Exit::Failed,
        "the provider does not accept the history of this conversation",
        // The encoders must produce only histories that every server accepts.
        "this is a bug in posse: report it with this message and the session id. The session is \
         kept: `/compact` in `posse plain -c` removes most of a long history from requests, \
         `/clear` starts a new one, and another model may accept it as it is",
    )
}

fn without_tools() -> ErrorParts {
    (
        ErrorCode::RequestRejected,
        Exit::Failed,
        "the server offers this model no tools, which posse needs",
        "use a model with a chat template for tools, or let the server pass them on (llama.cpp: \
         --jinja; vLLM: --enable-auto-tool-choice and --tool-call-parser)",
    )
}

fn endless_reply() -> ErrorParts {
    (
        ErrorCode::ReplyRepeats,
        Exit::Provider,
        "the model repeated the same text without end, and its replies were stopped",
        "set `temperature` of the provider to at least 0.6, or a repetition penalty of the server; \
         otherwise use a larger or less quantised model. The session is kept: `posse resume` \
         tries again",
    )
}

/// Error for a provider whose replies were all empty or invalid, until patience ended.
fn no_usable_reply(class: &str) -> ErrorParts {
    let (what, fix) = if class == "empty_reply" {
        (
            "the provider sent only empty replies",
            "the conversation may be too long for the model: set `contextWindow` of the provider, \
             or shorten the history with `/compact` in `posse plain -c`; the session is kept",
        )
    } else {
        (
            "the provider sent only invalid replies",
            "check `type` (the protocol) of the provider, or try again later; the session is kept",
        )
    };
    (ErrorCode::ProviderUnavailable, Exit::Provider, what, fix)
}

/// Returns `true` if the error text of a server contains a known phrase about a faulty history:
/// roles that do not alternate, calls without results, results without calls. `false` if it
/// contains none.
fn is_history_error(cause: &str) -> bool {
    const WORDS: [&str; 10] = [
        "tool_use_id",
        "tool_use` ids",
        "tool_use ids",
        "tool_call_id",
        "tool_calls must be followed",
        "tool_calls\" must be",
        "tool_calls' must be",
        "no tool call found for",
        "no tool output found for",
        "roles must alternate",
    ];
    let lower = cause.to_lowercase();
    WORDS.iter().any(|words| lower.contains(words))
}

#[cfg(test)]
mod tests {
    use posse_actors::conversation::Usage;

    use super::*;

    fn exit_of(ending: Ending, unanswered: u32) -> (Exit, &'static str) {
        let outcome =
            TurnOutcome { ending, turns: 1, usage: Usage::default(), unanswered, not_by_yes: 0 };
        let verdict = judge(Some(&outcome), None, PermissionHints::default());
        assert_eq!(verdict.failure.is_none(), matches!(verdict.exit, Exit::Done | Exit::Interrupt));
        let reason = SessionEndReason::KNOWN.iter().find(|known| **known == verdict.reason);
        (verdict.exit, reason.unwrap().as_str())
    }

    fn failed_as(class: &str) -> Ending {
        Ending::Failed { class: class.to_owned(), cause: "because".to_owned() }
    }

    #[test]
    fn only_an_answer_is_labelled_done() {
        let parked = Ending::Parked {
            class: "provider.overloaded".to_owned(),
            cause: "busy".to_owned(),
            next_try_ms: None,
        };
        let table = [
            (Ending::Answered("ok".to_owned()), "done"),
            (Ending::Limited { limit: "maxTurns", value: 3, said: None }, "stopped at a limit"),
            (failed_as("provider.auth"), "failed"),
            (failed_as("parked"), "parked"),
            (parked, "parked"),
            (Ending::Interrupted, "stopped"),
        ];
        for (ending, expected) in table {
            assert_eq!(label(&ending), expected, "{ending:?}");
        }
    }

    #[test]
    fn distinguishes_a_rejected_history_from_a_rejected_request() {
        let about_history = [
            "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after",
            "messages.5.content.0: unexpected `tool_use_id` found in `tool_result` blocks",
            "An assistant message with 'tool_calls' must be followed by tool messages",
            "Invalid parameter: messages with role 'tool' need a tool_call_id",
            "No tool output found for function call call_7.",
            "No tool call found for function call output with call_id call_7.",
            "Conversation roles must alternate user/assistant/user/assistant/...",
        ];
        let code = |cause: &str| provider_failed("rejected", cause).failure.unwrap().code.as_str();
        for cause in about_history {
            assert_eq!(code(cause), "PRV009", "{cause}");
        }
        for cause in ["model `x` does not exist", "max_tokens: 9 > 8", "invalid tool schema"] {
            assert_eq!(code(cause), "PRV004", "{cause}");
        }
    }

    #[test]
    fn advice_fits_the_cause_of_an_unreachable_provider() {
        let fix = |class: &str, cause: &str, next_try_ms| {
            let ending =
                Ending::Parked { class: class.to_owned(), cause: cause.to_owned(), next_try_ms };
            let (turns, usage) = (1, Usage::default());
            let outcome = TurnOutcome { ending, turns, usage, unanswered: 0, not_by_yes: 0 };
            let verdict = judge(Some(&outcome), None, PermissionHints::default());
            let failure = verdict.failure.unwrap();
            (verdict.exit, failure.to_string())
        };
        let silent = "local: no answer within 90 s: if the server needs longer to read the prompt, \
                      raise timeouts.firstByte of the provider";
        let quiet = "the reply broke off at byte 0: not a byte for 90 s (timeouts.silence)";
        let spent = &format!("busy (3 attempts: {ATTEMPTS_SPENT})");
        let refused = "nothing listens at http://127.0.0.1:1 (connection refused)";
        let table = [
            ("provider.unreachable", silent, Some(1), "raise `providers.NAME.timeouts.firstByte`"),
            ("provider.unreachable", quiet, Some(1), "`timeouts.silence`"),
            ("provider.unreachable", refused, None, "then continue with `posse resume`"),
            ("provider.unreachable", refused, Some(1), "a longer `patience` waits longer"),
            ("provider.quota", "used up", None, "does not say when to retry"),
            ("provider.overloaded", spent, Some(1), "a larger `retry.maxAttempts`"),
        ];
        for (class, cause, next_try_ms, expected) in table {
            let (exit, text) = fix(class, cause, next_try_ms);
            assert_eq!(exit, Exit::Provider);
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn unknown_path_advises_the_address_and_not_the_model() {
        let path = "local: answered 404: Not Found (the path may be wrong: check `type` and \
                    `baseURL` of the provider)";
        let model = "local: answered 404: The model `x` does not exist";
        for (cause, expected, other) in
            [(path, "correct `type`", "model name"), (model, "model name", "correct `type`")]
        {
            let text = provider_failed("rejected", cause).failure.unwrap().to_string();
            assert!(text.contains(expected) && !text.contains(other), "{text}");
        }
    }

    #[test]
    fn failures_never_exit_successfully() {
        let answered = || Ending::Answered("ok".to_owned());
        let over_budget =
            |limit| Ending::OverBudget(BudgetRefusal { limit, cap: 10, spent: 7, needed: 4 });
        let limited = |limit| Ending::Limited { limit, value: 3, said: None };
        let parked = |next_try_ms| Ending::Parked {
            class: "provider.overloaded".to_owned(),
            cause: "busy".to_owned(),
            next_try_ms,
        };
        let table = [
            (answered(), 0, (Exit::Done, "completed")),
            (answered(), 1, (Exit::Permission, "permission")),
            (limited("maxTurns"), 0, (Exit::Limit, "limit")),
            (limited("maxTokens"), 0, (Exit::Limit, "limit")),
            (limited("timeout"), 0, (Exit::Timeout, "limit")),
            (over_budget(BudgetRefusal::MONEY), 0, (Exit::Limit, "limit")),
            (over_budget(BudgetRefusal::TOKENS), 0, (Exit::Limit, "limit")),
            (failed_as("provider.budget"), 0, (Exit::Configuration, "provider")),
            (failed_as("provider.overloaded"), 0, (Exit::Provider, "provider")),
            (failed_as("provider.unreachable"), 0, (Exit::Provider, "provider")),
            (failed_as("provider.broken_reply"), 0, (Exit::Provider, "provider")),
            (failed_as("provider.empty_reply"), 0, (Exit::Provider, "provider")),
            (failed_as("provider.repeating_reply"), 0, (Exit::Provider, "provider")),
            (failed_as("provider.unauthorized"), 0, (Exit::Configuration, "provider")),
            (failed_as("provider.rejected"), 0, (Exit::Failed, "provider")),
            (failed_as("provider.context_full"), 0, (Exit::Failed, "provider")),
            (failed_as("provider.redirected"), 0, (Exit::Failed, "provider")),
            (failed_as("provider.not_the_provider"), 0, (Exit::Failed, "provider")),
            (failed_as("provider.no_vision"), 0, (Exit::Usage, "provider")),
            (failed_as("content_filter"), 0, (Exit::Failed, "failed")),
            (failed_as("loop"), 0, (Exit::Failed, "failed")),
            (failed_as("hook"), 0, (Exit::Failed, "failed")),
            (failed_as("journal"), 0, (Exit::Session, "failed")),
            (failed_as("parked"), 0, (Exit::Internal, "parked")),
            (parked(Some(1)), 0, (Exit::Provider, "parked")),
            (parked(None), 0, (Exit::Provider, "parked")),
            (failed_as("provider.filtered"), 0, (Exit::Failed, "failed")),
            (failed_as("provider.not_the_provider"), 0, (Exit::Failed, "provider")),
            (Ending::Interrupted, 0, (Exit::Interrupt, "interrupted")),
        ];
        for (ending, unanswered, expected) in table {
            assert_eq!(exit_of(ending.clone(), unanswered), expected, "{ending:?}");
        }
        assert_eq!(judge(None, None, PermissionHints::default()).exit, Exit::Internal);
    }

    #[test]
    fn fix_names_only_options_that_would_help() {
        let fix = |unanswered, not_by_yes, yes, rule| {
            let ending = Ending::Answered("ok".to_owned());
            let usage = Usage::default();
            let outcome = TurnOutcome { ending, turns: 1, usage, unanswered, not_by_yes };
            let hints = PermissionHints { yes, rule, ..PermissionHints::default() };
            let verdict = judge(Some(&outcome), None, hints);
            verdict.failure.unwrap().fix.unwrap()
        };
        assert_eq!(fix(2, 0, false, false), "run it in a terminal, or pass `--yes`");
        let all = "run it in a terminal, pass `--yes`, or add the rule shown above";
        assert_eq!(fix(2, 0, false, true), all);
        for (not_by_yes, yes, begins) in [
            (2, false, "run it in a terminal and answer there: `--yes` does not cover it."),
            (1, false, "run it in a terminal and answer there: `--yes` does not cover 1 of them."),
            (
                2,
                true,
                "run it in a terminal without `--yes` and answer there: `--yes` does not cover it.",
            ),
            (
                0,
                true,
                "run it in a terminal without `--yes` and answer there: `--yes` does not cover it.",
            ),
        ] {
            for rule in [false, true] {
                let fix = fix(2, not_by_yes, yes, rule);
                assert!(fix.starts_with(begins), "{fix}");
                assert!(!fix.contains("pass `--yes`") && !fix.contains("rule"), "{fix}");
                assert!(fix.contains("only together with `--sandbox off`"), "{fix}");
            }
        }
    }

    #[test]
    fn fix_names_the_weaker_answer_first_and_the_network() {
        let fix = |mode, network| {
            let ending = Ending::Answered("ok".to_owned());
            let usage = Usage::default();
            let outcome = TurnOutcome { ending, turns: 1, usage, unanswered: 1, not_by_yes: 0 };
            let hints = PermissionHints { network, mode, ..PermissionHints::default() };
            judge(Some(&outcome), None, hints).failure.unwrap().fix.unwrap()
        };
        let strict = fix(Some(PermissionMode::Ask), false);
        let expected = "run it in a terminal, pass `--permission-mode auto`, which asks about \
                        less, or pass `--yes`";
        assert_eq!(strict, expected);
        let auto = fix(Some(PermissionMode::Auto), true);
        assert!(auto.starts_with("run it in a terminal, or pass `--yes`; for the network"));
        assert!(auto.contains("`network.allowedDomains`") && auto.contains("`--network ask`"));
    }

    #[test]
    fn full_disk_is_not_reported_as_a_bug() {
        let cause = "the journal cannot be written: No space left on device (os error 28)";
        let ending = Ending::Failed { class: "journal".to_owned(), cause: cause.to_owned() };
        let outcome =
            TurnOutcome { ending, turns: 1, usage: Usage::default(), unanswered: 0, not_by_yes: 0 };
        let failure = judge(Some(&outcome), None, PermissionHints::default()).failure.unwrap();
        insta::assert_snapshot!(failure, @r"
        error[JRN001]: the journal cannot be written, so the run was stopped
          why: the journal cannot be written: No space left on device
          fix: free space on the disk of the state directory
        ");
    }
}
