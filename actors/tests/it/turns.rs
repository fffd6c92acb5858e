//! One prompt, from the user to the answer.

use posse_actors::outcome::Ending;
use posse_actors::testing::{ModelStep, SessionBuilder, types};

#[tokio::test]
async fn model_answers_after_its_tools() {
    let bench = SessionBuilder::new(vec![
        ModelStep::call("echo", r#"{"text":"hi"}"#),
        ModelStep::say("done"),
    ]);
    let mut stage = bench.start().await;
    let outcome = stage.play("go").await;
    assert_eq!(outcome.ending, Ending::Answered("done".to_owned()));
    let seen = types(&stage.end().await).join("\n");
    insta::assert_snapshot!(seen, @r"
    session.started
    user.message
    agent.invocation.started
    context.compiled
    model.request
    model.text
    model.usage
    tool.requested
    tool.started
    tool.completed
    context.compiled
    model.request
    model.text.delta
    model.text
    model.usage
    agent.invocation.completed
    session.ended
    ");
    let sent = bench.model.requests();
    assert_eq!(sent[1].len(), sent[0].len() + 2);
}
