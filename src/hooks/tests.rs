//! Guards and redaction, without processes.

use posse_actors::conversation::{AssistantMessage, CallId, ContentPart, SessionId, StopReason};
use posse_actors::ports::{
    Access, Action, Completion, Delta, HookedCall, NetworkAccess, Provider, ProviderError, Request,
    Situation, ToolAnnotations, Verdict,
};
use posse_actors::testing::{ModelStep, PolicyFn, ScriptedModel, allow_all};
use proptest::prelude::*;
use secrecy::SecretString;
use serde_json::json;
use tokio::sync::mpsc;

use super::*;

fn hooks_of(policy: Arc<dyn Policy>) -> Arc<dyn Hook> {
    let entries = [json!({"event": "PreToolUse", "command": ["/gone"], "onFailure": "block"})];
    let settings = HookSettings {
        entries: &entries,
        home: None,
        path: OsString::new(),
        cwd: PathBuf::from("/"),
        session_dir: PathBuf::from("/gone"),
        confinement: Confinement {
            profile: "workspace-write".to_owned(),
            writable_roots: Vec::new(),
            network: NetworkAccess::Denied,
        },
        tier: SandboxTier::None,
        watched: Vec::new(),
    };
    let sandbox = Sandbox::with_helper(PathBuf::from("/gone"), Vec::new());
    hooks(settings, Arc::new(sandbox), policy).unwrap()
}

fn says(policy: Arc<dyn Policy>, tool: &str, input: Value) -> String {
    let access = match tool {
        "bash" => Access::Process,
        "read_file" => Access::Read,
        _ => Access::Write,
    };
    let annotations = ToolAnnotations::new(access);
    let used = HookedCall { call_id: CallId::new("c"), tool: tool.to_owned(), annotations, input };
    let occasion = HookInvocation {
        session_id: SessionId::new("s"),
        permission_mode: posse_actors::event::PermissionMode::Ask,
        origin: None,
        moment: HookPayload::PreToolUse(used),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reports = runtime.block_on(hooks_of(policy).fire(occasion));
    assert_eq!(reports.len(), 1);
    format!("{} {:?}", reports[0].hook, reports[0].says)
}

#[test]
fn guards_run_first_and_a_crashed_guard_denies() {
    let denies: Arc<dyn Policy> = Arc::new(PolicyFn(|action: &Action, _: &Situation<'_>| {
        assert!(action.detail != "crash", "the guard crashes");
        Verdict::Deny { reason: "no".to_owned(), rule: "test".to_owned() }
    }));
    let of = |policy: &Arc<dyn Policy>, tool, input| says(Arc::clone(policy), tool, input);
    let command = |text: &str| json!({"command": text});
    assert_eq!(of(&denies, "bash", command("x")), "block-dangerous-bash Block");
    let crashed = r#"built-in Failed { code: "HK006", blocks: true }"#;
    assert_eq!(of(&denies, "bash", command("crash")), crashed);
    for tool in ["write_file", "edit_file", "multi_edit"] {
        let env = json!({"path": "a/.env.local"});
        assert_eq!(of(&denies, tool, env), "protect-env-files Block", "{tool}");
    }
    // The guards have no objection, so the command is asked, and does not exist.
    let asked = r#"gone Failed { code: "HK001", blocks: true }"#;
    assert_eq!(of(&allow_all(), "bash", command("x")), asked);
    assert_eq!(of(&denies, "write_file", json!({"path": ".env.example"})), asked);
    assert_eq!(of(&denies, "read_file", json!({"path": ".env"})), asked);
}

#[test]
fn without_hooks_no_process_starts() {
    let hooks = hooks_of(allow_all());
    assert!(hooks.has_hook(HookEvent::PreToolUse, Some("bash")));
    assert!(!hooks.has_hook(HookEvent::PostToolUse, Some("bash")));
    assert!(!hooks.has_hook(HookEvent::Stop, None));
}

const SECRET: &str = "sk-abcdef-123456";

fn masking() -> Masking {
    Masking::new(&[SecretString::from(SECRET)])
}

/// Streamed text, and the result.
fn streamed(step: ModelStep) -> (String, Result<Completion, ProviderError>) {
    let model = masking().model(Arc::new(ScriptedModel::new(vec![step])));
    let request = Request {
        messages: Vec::new(),
        tools: Arc::new([]),
        stream: true,
        tokens_max: None,
        temperature: None,
        thinking: None,
        session: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (sender, mut receiver) = mpsc::channel(4);
        let relay = async {
            let mut all = String::new();
            while let Some(delta) = receiver.recv().await {
                match delta {
                    Delta::Text(text) | Delta::Thinking(text) | Delta::Notice(text) => {
                        all.push_str(&text);
                    }
                    Delta::Usage(_) | Delta::Alive => {}
                }
            }
            all
        };
        let (result, all) =
            futures_util::future::join(model.complete(request, sender), relay).await;
        (all, result)
    })
}

#[test]
fn secrets_in_replies_are_masked_across_chunks_and_aborts() {
    for cut in 0..=SECRET.len() {
        let (a, b) = SECRET.split_at(cut);
        let pieces = vec!["the key: ".to_owned(), a.to_owned(), b.to_owned(), ".".to_owned()];
        let (all, result) = streamed(ModelStep::Say(pieces));
        assert_eq!(all, "the key: [secret].", "cut at {cut}");
        assert_eq!(result.unwrap().message.content.as_deref(), Some("the key: [secret]."));
    }
    let error = || ProviderError::Broken { partial: format!("x {SECRET}"), source: "cut".into() };
    let (all, result) = streamed(ModelStep::Fail(format!("x {SECRET}"), error()));
    assert_eq!(all, "x [secret]");
    assert!(
        matches!(result, Err(ProviderError::Broken { partial, .. }) if partial == "x [secret]")
    );
    let cut = ProviderError::Cut { partial: format!("x {SECRET}"), source: "cut".into() };
    let (_, result) = streamed(ModelStep::Fail(format!("x {SECRET}"), cut));
    assert!(matches!(result, Err(ProviderError::Cut { partial, .. }) if partial == "x [secret]"));
    let thought =
        posse_actors::conversation::Reasoning { text: SECRET.to_owned(), ..Default::default() };
    let message =
        AssistantMessage { content: None, reasoning: Some(thought), tool_calls: Vec::new() };
    let reply = Completion { message, stop_reason: StopReason::EndTurn, usage: None, model: None };
    let (_, result) = streamed(ModelStep::Reply(reply));
    assert_eq!(result.unwrap().message.reasoning.unwrap().text, "[secret]");
}

#[test]
fn without_secrets_nothing_is_wrapped() {
    let model: Arc<dyn Provider> = Arc::new(ScriptedModel::new(Vec::new()));
    let same = Masking::new(&[SecretString::from("short")]).model(Arc::clone(&model));
    assert!(Arc::ptr_eq(&model, &same));
}

proptest! {
    #[test]
    fn ordinary_text_is_streamed_unchanged(pieces in prop::collection::vec("[a-ü😀 sk-]{0,12}", 0..8)) {
        let whole = pieces.concat();
        prop_assume!(!whole.contains("sk-abcde"));
        let (all, result) = streamed(ModelStep::Say(pieces));
        prop_assert_eq!(&all, &whole);
        let said = result.unwrap().message.content.unwrap_or_default();
        prop_assert_eq!(said, whole);
    }
}

#[test]
fn secrets_in_tool_results_are_masked() {
    let mut toolbox = posse_actors::ports::Toolbox::default();
    toolbox.register(Arc::new(posse_actors::testing::EchoTool::new())).ok();
    let tools = masking().tools(toolbox);
    let tool = Arc::clone(tools.get("echo").unwrap());
    let context = posse_actors::testing::call_of_main("s", "c", "build");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let output = runtime.block_on(async {
        let arguments = json!({"text": format!("key {SECRET}")});
        let prepared = tool.prepare(arguments, context.clone()).await.unwrap();
        let call = posse_actors::conversation::ToolCall {
            id: CallId::new("c"),
            provider_id: None,
            name: "echo".to_owned(),
            arguments: String::new(),
        };
        let confinement = posse_actors::testing::test_confinement();
        let permitted = posse_actors::ports::permit_for_test(call, prepared, confinement);
        let (output, _watched) = mpsc::channel(1);
        let (facts, _recorded) = mpsc::channel(1);
        let context = posse_actors::ports::RunContext {
            call: context,
            output,
            facts,
            post_call: posse_actors::ports::PostCallSink::new(drop),
            connections: posse_actors::ports::ConnectionAsker::default(),
            output_bytes_max: 1000,
            room_bytes: usize::MAX,
            answer: None,
        };
        tool.run(permitted, context).await
    });
    assert_eq!(output.content, [ContentPart::text("key [secret]")]);
}
