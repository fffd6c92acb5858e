//! The session title: requested once from the model with the role, after the first answer, without
//! delaying anything.

use std::sync::Arc;

use posse_actors::context::ContextSettings;
use posse_actors::conversation::Prompt;
use posse_actors::event::{Announcement, Event};
use posse_actors::outcome::Ending;
use posse_actors::ports::{Abilities, Fallback, Provider, ProviderError};
use posse_actors::replay::replay;
use posse_actors::root_session::{Resumption, SessionEnding};
use posse_actors::testing::{MemoryStore, ModelStep, ScriptedModel, SessionBuilder};
use tokio::sync::Notify;

use crate::support::{count, end, play, quick, soon};

/// A session that answers, and a title model that follows `steps`.
fn bench(steps: Vec<ModelStep>) -> (SessionBuilder, Arc<ScriptedModel>) {
    let mut bench = SessionBuilder::new(vec![
        ModelStep::calls("echo", &["a"]),
        ModelStep::say("Done."),
        ModelStep::say("More."),
    ]);
    bench.limits = quick();
    let namer = Arc::new(ScriptedModel::new(steps).named("namer"));
    let provider = Arc::clone(&namer) as Arc<dyn Provider>;
    let title = Some(Fallback { provider, abilities: Abilities::default(), price: None });
    bench.context = ContextSettings { title, ..ContextSettings::default() };
    (bench, namer)
}

fn titles(seen: &[Arc<Announcement>]) -> Vec<String> {
    let title = |one: &Arc<Announcement>| match one.event() {
        Event::SessionTitled { title } => Some(title.clone()),
        _ => None,
    };
    seen.iter().filter_map(title).collect()
}

#[tokio::test]
async fn title_is_requested_once_and_kept() {
    let (first, namer) = bench(vec![ModelStep::say("\"Mend the\u{7} login.\"\nand more")]);
    let mut stage = first.start().await;
    play(&mut stage, "Please mend the login", &[]).await.unwrap();
    play(&mut stage, "and now?", &[]).await.unwrap();
    let seen = end(&first, stage).await;
    assert!(
        titles(&seen).iter().all(|title| title == "Mend the login") && !titles(&seen).is_empty()
    );
    let [asked] = namer.requests().try_into().unwrap();
    let text = format!("{asked:?}");
    assert!(text.contains("USER: Please mend the login") && text.contains("ASSISTANT: Done."));
    let paid = seen.iter().any(|one| {
        matches!(one.event(), Event::ModelUsage { .. })
            && one.origin().is_some_and(|origin| origin.agent_path == "build/title")
    });
    assert!(paid, "it has a line of its own in the ledger");
    assert!(
        matches!(seen.last().unwrap().event(), Event::SessionEnded { usage, .. }
        if usage.input_tokens == Some(40)),
        "and is part of the whole"
    );

    // Another process resumes it and requests no title.
    let records = first.journal.records();
    let replayed = replay(&records, None);
    assert_eq!(replayed.title.as_deref(), Some("Mend the login"));
    let (mut second, namer) = bench(vec![ModelStep::say("Another")]);
    second.journal = Arc::new(MemoryStore::of(records));
    second.process = 2;
    second.resumption = Some(Resumption { replayed, ..Resumption::default() });
    let mut stage = second.start().await;
    stage.play("go on").await;
    let seen = stage.end().await;
    assert_eq!((titles(&seen), namer.requests().len()), (vec!["Mend the login".to_owned()], 0));
}

#[tokio::test]
async fn ended_run_waits_for_its_title_unless_interrupted() {
    for interrupted in [false, true] {
        let gate = Arc::new(Notify::new());
        let (bench, namer) = bench(vec![ModelStep::after(&gate, ModelStep::say("Mend it"))]);
        let mut stage = bench.start().await;
        let outcome = play(&mut stage, "go", &[]).await.unwrap();
        assert_eq!(outcome.ending, Ending::Answered("Done.".to_owned()), "nobody waits");
        soon("the request", async {
            while namer.requests().is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        if !interrupted {
            gate.notify_one();
        }
        let reason = if interrupted {
            posse_actors::event::SessionEndReason::Interrupted
        } else {
            posse_actors::event::SessionEndReason::Completed
        };
        let session = stage.session.clone();
        let ending = SessionEnding { reason, exit_code: 0, result: None, error: None };
        soon("the end", session.end(ending)).await;
        while let Some(one) = stage.events.next().await {
            stage.seen.push(one);
        }
        let expected: &[&str] = if interrupted { &[] } else { &["Mend it"] };
        assert_eq!(titles(&stage.seen), expected);
        assert_eq!(count(&stage.seen, "session.ended"), 1);
        assert_eq!(namer.dropped(), u32::from(interrupted));
    }
}

#[tokio::test]
async fn failed_or_hanging_title_model_only_adds_a_warning() {
    let source = "no such model".into();
    let (bench, namer) =
        bench(vec![ModelStep::Fail(String::new(), ProviderError::Rejected { source })]);
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    let running = stage.session.prompt(Prompt::text("and now?")).await.unwrap();
    assert!(matches!(running.outcome().await.unwrap().ending, Ending::Answered(_)));
    let seen = end(&bench, stage).await;
    assert_eq!((titles(&seen).len(), namer.requests().len()), (0, 1));
    let warned = seen.iter().filter(|one| {
        matches!(one.event(), Event::Warning { message } if message.contains("no such model"))
    });
    assert_eq!(warned.count(), 1);
}

#[tokio::test]
async fn no_title_is_requested_without_the_role() {
    let (mut bench, namer) = bench(vec![ModelStep::say("never")]);
    bench.context = ContextSettings::default();
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    let seen = end(&bench, stage).await;
    assert_eq!((titles(&seen).len(), namer.requests().len()), (0, 0));
    assert_eq!(bench.model.requests().len(), 2);
}
