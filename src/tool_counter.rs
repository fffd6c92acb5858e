//! Provider wrapper that resets the budgets of tools when a task or a turn begins.

use std::sync::Arc;

use posse_actors::conversation::Message;
use posse_actors::ports::{
    Completion, DeltaSender, PortFuture, Provider, ProviderError, ProviderInfo, Request,
};

use crate::config::ToolSettings;
use crate::tools::budget::Budgets;

/// Wraps `model` so that each attempt resets counts of `budgets`: calls and output bytes if a task
/// begins, otherwise only output bytes. Returns `model` itself if no budget is configured.
pub(crate) fn counted(
    model: Arc<dyn Provider>,
    settings: &ToolSettings,
    budgets: Arc<Budgets>,
) -> Arc<dyn Provider> {
    if settings.output_budget.is_none() && settings.budgets.is_empty() {
        return model;
    }
    Arc::new(ToolCounter { model, budgets })
}

struct ToolCounter {
    model: Arc<dyn Provider>,
    budgets: Arc<Budgets>,
}

impl Provider for ToolCounter {
    fn info(&self) -> ProviderInfo {
        self.model.info()
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(&*self.model)
    }

    fn complete(
        &self,
        request: Request,
        deltas: DeltaSender,
    ) -> PortFuture<Result<Completion, ProviderError>> {
        if begins_task(&request.messages) {
            self.budgets.run_began();
        } else {
            self.budgets.turn_began();
        }
        self.model.complete(request, deltas)
    }
}

/// True if a new task begins: the last messages are of the user and do not follow a tool result,
/// unlike steering messages after a call.
fn begins_task(messages: &[Arc<Message>]) -> bool {
    let is_user = |message: &&Arc<Message>| matches!(***message, Message::User { .. });
    let said = messages.iter().rev().take_while(is_user).count();
    let before = messages.iter().rev().nth(said).map(|message| &**message);
    said > 0 && !matches!(before, Some(Message::Tool { .. }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use posse_actors::conversation::InvocationId;
    use posse_actors::event::{Origin, UserRequest};
    use posse_actors::ports::{
        Access, BackgroundScope, CallContext, PermittedCall, Prepared, RunContext, SideEffect,
        TokenCount, Tool, ToolAnnotations, ToolError, ToolOutput, ToolSpec, Toolbox,
    };
    use secrecy::SecretString;
    use serde_json::{Value, json};

    use super::*;
    use crate::hooks::Masking;
    use crate::provider::replay::Tape;
    use crate::{agents, tools};

    /// Methods that reached a probe.
    type Reached = Arc<Mutex<Vec<&'static str>>>;

    fn note(reached: &Reached, method: &'static str) {
        reached.lock().unwrap().push(method);
    }

    /// A tool that every wrapper wraps, and that records the methods that reach it.
    struct ToolProbe(ToolSpec, Reached);

    impl Tool for ToolProbe {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        fn background_work(&self, _: &Origin) -> Vec<String> {
            note(&self.1, "background_work");
            vec!["a job".to_owned()]
        }

        fn prepare(&self, _: Value, _: CallContext) -> PortFuture<Result<Prepared, ToolError>> {
            note(&self.1, "prepare");
            Box::pin(std::future::pending())
        }

        fn run(&self, _: PermittedCall, _: RunContext) -> PortFuture<ToolOutput> {
            unreachable!("the probe permits no call")
        }

        fn user_request(&self, _: &Value) -> Option<UserRequest> {
            note(&self.1, "user_request");
            Some(UserRequest::Plan { plan: String::new(), modes: Vec::new() })
        }

        fn denial_advice(&self) -> Option<&str> {
            note(&self.1, "if_denied");
            Some("advice")
        }

        fn history_shortened(&self) {
            note(&self.1, "history_shortened");
        }

        fn stop_background(&self, _: &BackgroundScope) -> PortFuture<()> {
            note(&self.1, "stop_background");
            Box::pin(std::future::ready(()))
        }
    }

    fn toolbox(tool: Arc<dyn Tool>) -> Toolbox {
        let mut tools = Toolbox::default();
        assert!(tools.register(tool).is_ok());
        tools
    }

    #[test]
    fn every_tool_wrapper_forwards_every_method() {
        let reached = Reached::default();
        let spec = ToolSpec {
            name: "read_file".to_owned(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": {}}),
            side_effect: SideEffect::None,
            source: "builtin".to_owned(),
            annotations: ToolAnnotations { opens_file: true, ..ToolAnnotations::new(Access::Read) },
        };
        let probe: Arc<dyn Tool> = Arc::new(ToolProbe(spec, Arc::clone(&reached)));
        let budgets = Arc::new(Budgets::new(Some(1), []));
        let wrapped = tools::budget::within(&budgets, Arc::clone(&probe));
        let masking = Masking::new(&[SecretString::from("a-secret-value")]);
        let wrapped = masking.tools(toolbox(wrapped));
        let wrapped = agents::with_nested_instructions(
            &wrapped,
            Path::new("/w"),
            Path::new("/w"),
            &posse_base::path_globs::PathGlobs::default(),
        );
        let tool = wrapped.get("read_file").unwrap();
        let mut layers = 0;
        let mut inner = tool.inner();
        while let Some(next) = inner {
            (layers, inner) = (layers + 1, next.inner());
        }
        assert_eq!(layers, 3, "a wrapper was left out");

        let origin = Origin {
            invocation_id: InvocationId::new("i1"),
            parent_invocation_id: None,
            agent: "build".to_owned(),
            agent_path: "build".to_owned(),
        };
        assert_eq!(tool.background_work(&origin), ["a job"]);
        assert_eq!(tool.denial_advice(), Some("advice"));
        assert!(tool.user_request(&json!({})).is_some());
        tool.history_shortened();
        drop(tool.stop_background(&BackgroundScope::Session));
        let methods = [
            "background_work",
            "if_denied",
            "user_request",
            "history_shortened",
            "stop_background",
        ];
        assert_eq!(*reached.lock().unwrap(), methods);
    }

    /// A provider that records the methods that reach it.
    struct ProviderProbe(Reached);

    impl Provider for ProviderProbe {
        fn info(&self) -> ProviderInfo {
            ProviderInfo {
                profile: "probe".to_owned(),
                endpoint: "nowhere".to_owned(),
                model: "m".to_owned(),
            }
        }

        fn account(&self) -> String {
            note(&self.0, "account");
            "an account".to_owned()
        }

        fn complete(
            &self,
            _: Request,
            _: DeltaSender,
        ) -> PortFuture<Result<Completion, ProviderError>> {
            unreachable!("the probe gets no request")
        }

        fn count_tokens(&self, _: Request) -> PortFuture<Result<TokenCount, ProviderError>> {
            note(&self.0, "count_tokens");
            Box::pin(std::future::ready(Ok(TokenCount { tokens: 7, is_exact: true })))
        }
    }

    #[tokio::test]
    async fn every_provider_wrapper_forwards_every_method() {
        let reached = Reached::default();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tape.jsonl");
        let tape =
            Tape::create("m".to_owned(), false, &file, dir.path(), Box::new(|_| ())).unwrap();
        let settings = ToolSettings { output_budget: Some(1), ..ToolSettings::default() };
        let budgets = Arc::new(Budgets::new(Some(1), []));
        let model = counted(Arc::new(ProviderProbe(Arc::clone(&reached))), &settings, budgets);
        let model = Masking::new(&[SecretString::from("a-secret-value")]).model(model);
        let model = tape.recording(model);
        assert_eq!(model.account(), "an account");
        let request = Request {
            messages: Vec::new(),
            tools: Arc::new([]),
            stream: false,
            temperature: None,
            tokens_max: None,
            thinking: None,
            session: None,
        };
        assert_eq!(model.count_tokens(request).await.unwrap().tokens, 7);
        assert_eq!(*reached.lock().unwrap(), ["account", "count_tokens"]);
    }
}
