//! Reports of subagents: handed to the next one of the same name, also after a resume, until they
//! are removed.

use posse_actors::conversation::SessionId;
use posse_actors::event::Branch;
use posse_actors::outcome::Memories;
use posse_actors::replay::replay;
use posse_actors::root_session::Resumption;
use posse_actors::testing::MemoryStore;

use super::*;

/// The handoffs that a subagent received.
fn packets(model: &ScriptedModel) -> Vec<String> {
    let packet = |request: Vec<Arc<Message>>| match &*request[1] {
        Message::User { content } => text_of(content),
        other => panic!("{other:?}"),
    };
    model.requests().into_iter().filter(|request| request.len() == 2).map(packet).collect()
}

fn reads(path: &str) -> ModelStep {
    ModelStep::call("echo", &format!(r#"{{"text":"x","path":"{path}"}}"#))
}

fn bench(
    main: Vec<ModelStep>,
    scout: Vec<ModelStep>,
) -> (SessionBuilder, Arc<ScriptedModel>, Arc<ScriptedModel>) {
    let (scout, other) = (model("scout", scout), model("other", vec![ModelStep::say("so")]));
    let mut bench = SessionBuilder::new(main);
    bench.limits = quick();
    let subagents =
        vec![subagent("scout", &scout, &["echo"], &[]), subagent("other", &other, &[], &[])];
    bench.delegation = Some(Delegation { remembers: true, ..delegation(subagents) });
    (bench, scout, other)
}

#[tokio::test]
async fn memory_reaches_the_next_subagent_of_the_same_name_only() {
    let report = "Findings:\n- it is in src/a.rs:3\n\nOpen questions:\n- who calls it?";
    let scout = vec![
        reads("src/a.rs"),
        ModelStep::say(report),
        ModelStep::say("again"),
        ModelStep::say("third"),
    ];
    let main = vec![calls(&["scout"]), calls(&["scout", "other"]), ModelStep::say("done")];
    let (bench, scout, other) = bench(main, scout);
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    let [first, second] = packets(&scout).try_into().unwrap();
    assert!(!first.contains("<memory>"), "{first}");
    for part in
        ["<memory>", "- it is in src/a.rs:3", "- who calls it?", "- src/a.rs\n", "look (done)"]
    {
        assert!(second.contains(part), "{part}: {second}");
    }
    assert!(!packets(&other)[0].contains("<memory>"), "each has its own");
    // Live memories and those from the journal are the same.
    let live = stage.session.memories().await;
    assert_eq!(live.all().len(), 2);
    let records = bench.journal.records();
    assert_eq!(Memories::of(&replay(&records, None)), live);
    end(&bench, stage).await;

    let (mut again, scout, _) = self::bench(
        vec![calls(&["scout"]), ModelStep::say("done"), calls(&["scout"]), ModelStep::say("done")],
        vec![ModelStep::say("here"), ModelStep::say("here")],
    );
    again.journal = Arc::new(MemoryStore::of(bench.journal.records()));
    again.process = 2;
    let replayed = replay(&again.journal.records(), None);
    again.resumption = Some(Resumption { replayed, ..Resumption::default() });
    let mut stage = again.start().await;
    play(&mut stage, "once more", &[]).await.unwrap();
    let left = stage.session.forget(Some("scout".to_owned())).await;
    assert_eq!(left.all().len(), 1);
    play(&mut stage, "and now", &[]).await.unwrap();
    let [known, forgotten] = packets(&scout).try_into().unwrap();
    assert!(known.contains("tasks so far: 2") && known.contains("who calls it?"), "{known}");
    assert!(!forgotten.contains("<memory>"), "{forgotten}");
    let live = stage.session.memories().await;
    stage.end().await;
    let replayed = replay(&again.journal.records(), None);
    assert_eq!(Memories::of(&replayed), live);
    assert_eq!(live.all().iter().map(|one| one.tasks).collect::<Vec<_>>(), [1, 1]);
}

#[tokio::test]
async fn fork_inherits_memories_and_forgets_independently() {
    let (trunk, _, _) = bench(
        vec![calls(&["scout", "other"]), ModelStep::say("done")],
        vec![ModelStep::say("Findings:\n- it is in src/a.rs:3")],
    );
    let mut stage = trunk.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    let known = stage.session.memories().await;
    assert_eq!(known.all().len(), 2);
    end(&trunk, stage).await;

    let (mut branch, scout, _) =
        bench(vec![calls(&["scout"]), ModelStep::say("done")], vec![ModelStep::say("here")]);
    branch.process = 2;
    let replayed = replay(&trunk.journal.records(), None);
    let at = Branch { session: SessionId::new("trunk"), record: replayed.last_record };
    branch.resumption = Some(Resumption { replayed, branch: Some(at), ..Resumption::default() });
    let mut stage = branch.start().await;
    assert_eq!(stage.session.memories().await, known);
    play(&mut stage, "and now", &[]).await.unwrap();
    assert!(packets(&scout)[0].contains("- it is in src/a.rs:3"), "{:?}", packets(&scout));
    // It is in the fork's own journal: the original may be gone.
    let live = stage.session.memories().await;
    assert_eq!(live.all().iter().map(|one| one.tasks).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(Memories::of(&replay(&branch.journal.records(), None)), live);
    let left = stage.session.forget(Some("other".to_owned())).await;
    stage.end().await;
    assert_eq!(left.all().len(), 1);
    assert_eq!(Memories::of(&replay(&branch.journal.records(), None)), left);
    assert_eq!(Memories::of(&replay(&trunk.journal.records(), None)), known);
}

#[tokio::test]
async fn disabled_memory_hands_nothing_on() {
    let main = vec![calls(&["scout"]), calls(&["scout"]), ModelStep::say("done")];
    let (mut bench, scout, _) =
        bench(main, vec![ModelStep::say("src/a.rs:3"), ModelStep::say("so")]);
    bench.delegation.as_mut().unwrap().remembers = false;
    let mut stage = bench.start().await;
    play(&mut stage, "go", &[]).await.unwrap();
    end(&bench, stage).await;
    assert!(packets(&scout).iter().all(|packet| !packet.contains("<memory>")));
}
