//! Definitions from all sources, and errors of invalid ones.

use posse_base::failure::ErrorCode;
use std::fs;

use serde_json::json;
use strum::VariantArray as _;

use super::*;
use crate::{AgentDecision, AgentMode, Cost, ToolSelection};

struct RosterFolders {
    dir: tempfile::TempDir,
    configured: Vec<ConfiguredAgent>,
    believes: bool,
}

impl RosterFolders {
    fn new() -> RosterFolders {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["user", "work/.posse/agents"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        RosterFolders { dir, configured: Vec::new(), believes: true }
    }

    fn file(self, path: &str, text: &str) -> RosterFolders {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn config(mut self, name: &str, definition: Value) -> RosterFolders {
        let (name, place) = (name.to_owned(), "config.json:3".to_owned());
        self.configured.push(ConfiguredAgent { name, definition, place, project: false });
        self
    }

    fn load(&self) -> Roster {
        let base = self.dir.path().canonicalize().unwrap();
        let project = base.join("work");
        let folders = Folders {
            user: Some(base.join("user")),
            home: Some(base.join("home")),
            project: Some((project.join(".posse/agents"), project)),
        };
        let tools = ["bash", "grep", "read_file"].map(str::to_owned);
        let known = KnownNames {
            tools: &tools,
            has_profile: &|name| name == "fast",
            check_rules: &|rules| match rules[0]["tool"].as_str() {
                Some(_) => Vec::new(),
                None => vec![Failure::new(
                    ErrorCode::RuleInvalid,
                    Exit::Configuration,
                    "permissions[0] is none",
                )],
            },
            believes: &|_, _| self.believes,
        };
        Roster::load(&self.configured, &folders, &known)
    }

    /// Rejections: code, place without the folder, message.
    fn refused(&self) -> Vec<String> {
        let base = self.dir.path().canonicalize().unwrap().display().to_string();
        let line = |failure: &Failure| {
            let place = failure.place.as_deref().unwrap_or_default();
            format!("{} {place} {}", failure.code, failure.what).replace(&base, "")
        };
        self.load().refused().map(line).collect()
    }
}

const AUDIT: &str = "---
name: audit
description: Looks for holes.
displayName: The auditor
mode: all
authority: read-only
provider:
  profile: fast
tools:
  visible: [read_file, grep]
permissions:
  - { tool: bash, decision: deny, reason: not its business }
defaultDecision: ask
thinking: high
delegation: { callable: true, canDelegate: true, deniedAgents: [worker], maxDepth: 2 }
catalog:
  category: reviewer
  cost: expensive
  useWhen:
    - something is about to be published
limits: { maxTurns: 4, maxDurationSeconds: 90 }
---

Look for holes.
";

#[test]
fn parses_a_complete_definition() {
    let roster = RosterFolders::new().file("user/audit.md", AUDIT).load();
    assert_eq!(roster.refused().count(), 0);
    let audit = roster.choose("audit").unwrap();
    assert_eq!(
        (audit.mode, audit.read_only, audit.profile.as_deref()),
        (AgentMode::All, true, Some("fast"))
    );
    assert_eq!(audit.tools, ToolSelection::Only(vec!["read_file".into(), "grep".into()]));
    assert_eq!((audit.rules.len(), audit.default_decision), (1, Some(AgentDecision::Ask)));
    assert_eq!(audit.catalog.cost, Some(Cost::Expensive));
    assert_eq!(audit.limits.turns_max, Some(4));
    assert_eq!(audit.thinking, Some(posse_actors::ports::Thinking::High));
    assert_eq!(audit.prompt, "Look for holes.");
    assert_eq!(audit.invocation(AgentDecision::Allow), AgentDecision::Ask, "it is expensive");
    let calls: Vec<&str> = roster.callable_by(audit).map(|agent| agent.name.as_str()).collect();
    assert_eq!(calls, ["explore", "reviewer"]);
}

#[test]
fn invalid_definition_is_reported_with_its_place_and_others_load() {
    let place = RosterFolders::new()
        .file("user/audit.md", AUDIT)
        .file("user/build.md", AUDIT)
        .file("user/Odd name.md", "---\ndescription: d\ntools: []\n---\nx")
        .file("user/bad.md", "---\ndescription: d\ntools: [read_flie]\nmodel: m\n\nprovider:\n  profile: none\n  apiKey: sk-1\n---\nx")
        .file("user/none.md", "# Just text\n")
        .file("user/torn.md", "---\ndescription: [d\n---\n")
        .file("user/mute.md", "---\ndescription: d\ntools: []\npermissions:\n- decision: deny\n---\n")
        .file("user/not.txt", "no agent")
        .file("work/.posse/agents/audit.md", AUDIT)
        .file("work/.posse/agents/wide.md", "---\ndescription: d\ntools: \"*\"\ndefaultDecision: allow\npermissions:\n- {tool: bash, decision: allow}\n---\nx")
        .config("audit2", json!({"description": "d", "tools": {"visible": ["*"]}, "prompt": "p"}))
        .config("text", json!("x"));
    insta::assert_snapshot!(place.refused().join("\n"), @r#"
    AGN003 config.json:3 agents.text is not an object
    AGN003 /user/Odd name.md:1 agent "Odd name": its name is not usable
    AGN003 /user/bad.md:4 agent "bad": unknown field "model"
    AGN007 /user/bad.md:8 agent "bad": provider.apiKey does not belong into an agent
    AGN006 /user/bad.md:7 agent "bad": there is no provider profile "none"
    AGN005 /user/bad.md:3 agent "bad": there is no tool "read_flie"
    AGN004 /user/build.md:2 agent "build" is left out: a built-in agent has that name
    AGN003 /user/mute.md:5 agent "mute": permissions[0] is none
    AGN003 /user/mute.md:1 agent "mute": it has no instructions
    AGN002 /user/none.md:1 agent "none": there is no front matter: begin with a line ---
    AGN002 /user/torn.md:3 agent "torn": while parsing a flow sequence, expected ',' or ']'
    AGN004 /work/.posse/agents/audit.md:2 agent "audit" is left out: it is taken by /user/audit.md
    AGN003 /work/.posse/agents/wide.md:4 agent "wide": a repository cannot allow what nothing else covers
    AGN003 /work/.posse/agents/wide.md:6 agent "wide": a repository cannot allow anything
    "#);
    let roster = place.load();
    let own: Vec<&str> = roster.agents[5..].iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(own, ["audit2", "audit"]);
    assert_eq!(
        roster.choose("bad").unwrap_err().code,
        ErrorCode::AgentDefinitionInvalid,
        "the first of what is wrong"
    );
}

#[test]
fn project_agents_need_trust() {
    let mut place = RosterFolders::new().file("work/.posse/agents/audit.md", AUDIT);
    assert!(matches!(place.load().find("audit").unwrap().source, AgentSource::Project(_)));
    place.believes = false;
    let roster = place.load();
    assert_eq!((roster.find("audit"), &roster.inert), (None, &vec!["audit".to_owned()]));
    let failure = roster.choose("audit").unwrap_err();
    assert_eq!(failure.why.unwrap(), "the project has one, and you do not trust it");
}

#[test]
fn links_out_of_the_project_and_pipes_are_not_read() {
    let place = RosterFolders::new().file("audit.md", AUDIT);
    let base = place.dir.path();
    let agents = base.join("work/.posse/agents");
    std::os::unix::fs::symlink(base.join("audit.md"), agents.join("audit.md")).unwrap();
    nix::unistd::mkfifo(&agents.join("pipe.md"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(agents.join("huge.md"), "x".repeat(70 << 10)).unwrap();
    let roster = place.load();
    assert_eq!(roster.agents.len(), 5);
    let why: Vec<&str> = roster.refused().filter_map(|failure| failure.why.as_deref()).collect();
    assert_eq!(
        why,
        ["it leads out of the project", "it is longer than 65536 bytes", "it is not a file"]
    );
}

#[test]
fn catalog_keeps_every_name_at_any_budget() {
    use crate::catalog;

    let roster = RosterFolders::new().file("user/audit.md", AUDIT).load();
    let build = roster.find("build").unwrap();
    insta::assert_snapshot!(catalog(&roster, build, 8000), @"

    Agents that you may call with delegate_agent. Each works alone with what you give it, and gives back one answer. Call several in one turn to let them work side by side.
    - explore (researcher, cheap): Finds things out in the repository and reports them with their places
      Use when: a question needs many files to be looked at
      Avoid when: one search would answer it
    - reviewer (reviewer, cheap): Looks for what is wrong in code, and reports it with its places
      Use when: a change is ready to be looked at by somebody else
      Avoid when: nothing was written yet
    - worker (builder, standard): Does one bounded change: reads, changes files, runs commands
      Use when: a part of the task is clear, bounded and independent
      Avoid when: it needs what only you know
    - audit (reviewer, expensive): Looks for holes.
      Use when: something is about to be published
    ");
    let short = catalog(&roster, build, 600);
    assert!(short.len() <= 600 && !short.contains("Use when") && short.contains("Looks for"));
    let names = catalog(&roster, build, 10);
    for name in ["explore", "reviewer", "worker", "audit"] {
        assert!(names.contains(&format!("- {name} (")), "{names}");
    }
    assert_eq!(catalog(&roster, roster.find("plan").unwrap(), 8000), "");
}

#[test]
fn disallowed_tools_exclude_and_two_lists_are_an_error() {
    let roster = RosterFolders::new()
        .file("user/most.md", "---\ndescription: d\ndisallowedTools: [grep]\n---\nx")
        .file("user/both.md", "---\ndescription: d\ntools: [grep]\ndisallowedTools: [grep]\n---\nx")
        .file("user/typo.md", "---\ndescription: d\ndisallowedTools: [gerp]\n---\nx")
        .file(
            "user/lists.md",
            "---\ndescription: d\ntools: []\ndelegation: { allowedAgents: [a], deniedAgents: [b] }\n---\nx",
        );
    let loaded = roster.load();
    let most = &loaded.find("most").unwrap().tools;
    assert_eq!(*most, ToolSelection::AllBut(vec!["grep".into()]));
    assert_eq!(most.to_string(), "* except grep");
    let spec = |name: &str, with: Option<&str>| posse_actors::ports::ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters: Value::Null,
        side_effect: posse_actors::ports::SideEffect::None,
        source: "builtin".to_owned(),
        annotations: posse_actors::ports::ToolAnnotations {
            visible_with: with.map(str::to_owned),
            ..Default::default()
        },
    };
    assert!(most.sees(&spec("bash", None)) && !most.sees(&spec("grep", None)));
    // A tool that belongs to another one can be excluded by itself, and goes with the other one.
    assert!(!most.sees(&spec("grep", Some("bash"))) && !most.sees(&spec("tail", Some("grep"))));
    assert_eq!(
        roster.refused(),
        [
            "AGN003 /user/both.md:4 agent \"both\": it has both tools and disallowedTools",
            "AGN003 /user/lists.md:4 agent \"lists\": it has both allowedAgents and deniedAgents",
            "AGN005 /user/typo.md:3 agent \"typo\": there is no tool \"gerp\"",
        ]
    );
}

#[test]
fn claude_code_agents_load_after_posse_agents_and_under_trust() {
    let mut place = RosterFolders::new()
        .file(
            "home/.claude/agents/helper.md",
            "---\nname: helper\ndescription: d\ntools: Read\ncolor: red\n---\nx",
        )
        .file("home/.claude/agents/audit.md", "---\nname: audit\ndescription: d\n---\nx")
        .file("user/audit.md", AUDIT)
        .file(
            "work/.claude/agents/finder.md",
            "---\nname: finder\ndescription: d\ntools: Grep, WebFetch\nmodel: sonnet\n---\nx",
        );
    let roster = place.load();
    let helper = roster.find("helper").unwrap();
    assert!(helper.from_claude_code && matches!(helper.source, AgentSource::User(_)));
    assert_eq!(helper.tools, ToolSelection::Only(vec!["read_file".into()]));
    assert!(!roster.find("audit").unwrap().from_claude_code);
    let finder = roster.find("finder").unwrap();
    assert!(matches!(finder.source, AgentSource::Project(_)));
    assert_eq!(finder.tools, ToolSelection::Only(vec!["grep".into()]));
    let remarks: Vec<&str> = roster.remarks.iter().map(|remark| remark.what.as_str()).collect();
    assert_eq!(
        remarks,
        ["agents of Claude Code: ignored, no counterpart: WebFetch, color, model sonnet"]
    );
    place.believes = false;
    let roster = place.load();
    assert!(roster.find("finder").is_none() && roster.find("helper").is_some());
    assert_eq!(roster.inert, ["finder"]);
}

#[test]
fn uses_and_authority_narrow_a_definition() {
    let text = "---\ndescription: d\nmode: all\ntools: [read_file, grep]\n\
        authority:\n  tools: [grep, bash]\n  defaultDecision: deny\n  permissions:\n  - {tool: bash, decision: deny}\n\
        defaultDecision: ask\n\
        modes:\n  chat: { thinking: low, temperature: 0.5 }\n  task:\n    limits: { maxTurns: 3 }\n    prompt: { append: Decide. }\n\
        \x20 subagent: { enabled: false }\n---\nDo.";
    let roster = RosterFolders::new().file("user/audit.md", text).load();
    assert_eq!(roster.refused().collect::<Vec<_>>(), Vec::<&Failure>::new());
    let audit = roster.choose("audit").unwrap().clone();
    assert_eq!(audit.tools, ToolSelection::Only(vec!["grep".into()]));
    assert_eq!((audit.rules.len(), audit.default_decision), (1, Some(AgentDecision::Deny)));
    assert!(!audit.read_only);
    assert_eq!(audit.appended().collect::<Vec<_>>(), [("modes.task", "Decide.")]);

    let mut notices = Vec::new();
    let of = |used, notices: &mut Vec<String>| {
        roster.clone().for_session("audit", used, notices).unwrap().find("audit").unwrap().clone()
    };
    let chat = of(AgentUse::Chat, &mut notices);
    assert_eq!(chat.temperature, Some(0.5));
    let task = of(AgentUse::Task, &mut notices);
    assert_eq!((task.limits.turns_max, task.prompt.as_str()), (Some(3), "Do.\n\nDecide."));
    assert_eq!(notices, Vec::<String>::new());
    let other = roster.clone().for_session("build", AgentUse::Task, &mut notices).unwrap();
    assert_eq!(other.find("audit").unwrap().temperature, Some(0.5), "that of chat");
    assert!(notices[0].contains("modes.subagent is disabled"), "{notices:?}");
}

#[test]
fn disabled_use_is_an_error_or_prevents_calls() {
    let text =
        "---\ndescription: d\nmode: all\ntools: []\nmodes:\n  chat: { enabled: false }\n---\nDo.";
    let roster = RosterFolders::new().file("user/audit.md", text).load();
    let mut notices = Vec::new();
    let failure = roster.clone().for_session("audit", AgentUse::Chat, &mut notices).unwrap_err();
    assert_eq!(failure.code, ErrorCode::AgentNotPrimary);
    let other = roster.for_session("build", AgentUse::Chat, &mut notices).unwrap();
    assert!(!other.find("audit").unwrap().delegation.callable);
    assert!(notices[0].contains("no agent can call it"), "{notices:?}");
}

#[test]
fn wrong_fields_of_a_use_name_their_counterparts() {
    let text = "---\ndescription: d\ntools: []\nauthority: { tools: [none], level: 1 }\nmodes:\n  chat:\n    model: m\n    tools: [read_flie]\n    provider: { profile: fast }\n  subagent:\n    provider: { profile: none }\n    limits: { maxTurns: 0 }\n  daemon: {}\n---\nDo.";
    let refused = RosterFolders::new().file("user/audit.md", text).refused().join("\n");
    for part in [
        "AGN005 /user/audit.md:4 agent \"audit\": there is no tool \"none\"",
        "unknown field \"authority.level\"",
        "modes.chat.model is not known",
        "there is no tool \"read_flie\"",
        "modes.chat.provider.profile: the main agent uses the provider of the session",
        "AGN006",
        "modes.subagent.limits.maxTurns is out of range",
        "modes.daemon is not known",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    for (used, fix) in [
        ("chat", "leave it out: the main agent has the model of the session"),
        ("task", "leave it out: the main agent has the model of the session"),
        ("subagent", "provider: { profile: NAME }"),
    ] {
        let text =
            format!("---\ndescription: d\ntools: []\nmodes:\n  {used}: {{ model: m }}\n---\nDo.");
        let folders = RosterFolders::new().file("user/audit.md", &text);
        let loaded = folders.load();
        let fixes: Vec<_> = loaded.refused().filter_map(|failure| failure.fix.clone()).collect();
        assert!(fixes.iter().any(|given| given.contains(fix)), "{used}: {fixes:?}");
    }
}

#[test]
fn use_without_settings_has_those_of_the_definition() {
    let text = "---\ndescription: d\nmode: all\ntools: [grep]\nthinking: low\nprovider: { profile: fast }\nmodes:\n  chat: {}\n  task: { provider: {} }\n  subagent:\n---\nDo.";
    let folders = RosterFolders::new().file("user/audit.md", text);
    let roster = folders.load();
    let audit = roster.find("audit").unwrap();
    for used in AgentUse::VARIANTS {
        let seen = audit.for_use(*used).unwrap().agent;
        assert_eq!(seen.profile.as_deref(), Some("fast"), "{used:?}");
        assert_eq!((&seen.tools, seen.thinking), (&audit.tools, audit.thinking), "{used:?}");
    }
}
