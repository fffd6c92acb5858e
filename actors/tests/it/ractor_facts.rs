//! What this design relies on in ractor. If one of these fails after an update, read the list in
//! `docs/ARCHITECTURE.md` before anything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SpawnErr, SupervisionEvent};
use tokio::sync::Notify;

use crate::support::soon;

/// Does as it is told.
enum Msg {
    Panic,
    Fail,
    Hang,
    Spawn(Arc<Counts>),
    Ping(RpcReplyPort<u32>),
}

#[derive(Default)]
struct Counts {
    stopped: AtomicU32,
    dropped: AtomicU32,
    heard: AtomicU32,
    changed: Notify,
}

impl Counts {
    fn add(&self, counter: &AtomicU32) {
        counter.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    async fn until(&self, counter: &AtomicU32, count: u32) {
        soon("a count", async {
            loop {
                let changed = self.changed.notified();
                if counter.load(Ordering::SeqCst) >= count {
                    return;
                }
                changed.await;
            }
        })
        .await;
    }
}

struct Owned(Arc<Counts>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.add(&self.0.dropped);
    }
}

/// `keeps`: whether it overrides supervision.
struct TestActor {
    keeps: bool,
    starts: bool,
}

impl Actor for TestActor {
    type Msg = Msg;
    type State = (Arc<Counts>, Owned);
    type Arguments = Arc<Counts>;

    async fn pre_start(
        &self,
        _: ActorRef<Msg>,
        counts: Arc<Counts>,
    ) -> Result<Self::State, ActorProcessingErr> {
        if !self.starts {
            return Err("it does not start".into());
        }
        Ok((Arc::clone(&counts), Owned(counts)))
    }

    async fn handle(
        &self,
        me: ActorRef<Msg>,
        msg: Msg,
        _: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match msg {
            Msg::Panic => panic!("as it was told"),
            Msg::Fail => return Err("as it was told".into()),
            Msg::Hang => std::future::pending().await,
            Msg::Spawn(counts) => {
                let child = TestActor { keeps: false, starts: true };
                Actor::spawn_linked(None, child, counts, me.get_cell()).await?;
            }
            Msg::Ping(reply) => {
                reply.send(1).ok();
            }
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<Msg>,
        (counts, _): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        counts.add(&counts.stopped);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<Msg>,
        event: SupervisionEvent,
        (counts, _): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if matches!(
            event,
            SupervisionEvent::ActorFailed(..) | SupervisionEvent::ActorTerminated(..)
        ) {
            counts.add(&counts.heard);
            if !self.keeps {
                me.stop(None);
            }
        }
        Ok(())
    }
}

async fn parent() -> (ActorRef<Msg>, tokio::task::JoinHandle<()>, Arc<Counts>) {
    let counts = Arc::<Counts>::default();
    let subject = TestActor { keeps: true, starts: true };
    let (actor, done) = Actor::spawn(None, subject, Arc::clone(&counts)).await.unwrap();
    (actor, done, counts)
}

async fn child(parent: &ActorRef<Msg>) -> (ActorRef<Msg>, Arc<Counts>) {
    let counts = Arc::<Counts>::default();
    let subject = TestActor { keeps: true, starts: true };
    let spawned =
        Actor::spawn_linked(None, subject, Arc::clone(&counts), parent.get_cell()).await.unwrap();
    (spawned.0, counts)
}

/// Fact 2.
#[tokio::test]
async fn parent_without_the_override_ends_with_its_child() {
    struct Default;
    impl Actor for Default {
        type Msg = ();
        type State = ();
        type Arguments = ();

        async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
            Ok(())
        }
    }
    let (parent, done) = Actor::spawn(None, Default, ()).await.unwrap();
    let counts = Arc::<Counts>::default();
    let subject = TestActor { keeps: true, starts: true };
    let (child, _) = Actor::spawn_linked(None, subject, counts, parent.get_cell()).await.unwrap();
    child.stop(None);
    soon("the parent's end", done).await.unwrap();
}

/// Facts 2 and 5: a panic and an error end the child alone, its state is dropped, and `post_stop`
/// does not run.
#[tokio::test]
async fn failure_ends_one_actor_and_skips_its_post_stop() {
    for message in [Msg::Panic, Msg::Fail] {
        let (parent, _, heard) = parent().await;
        let (child, counts) = child(&parent).await;
        child.cast(message).unwrap();
        heard.until(&heard.heard, 1).await;
        counts.until(&counts.dropped, 1).await;
        assert_eq!(counts.stopped.load(Ordering::SeqCst), 0);
        assert_eq!(ractor::call!(parent, Msg::Ping).unwrap(), 1);
        parent.stop(None);
    }
}

/// Facts 4 and 5: `stop` waits for the handler, `kill` does not, and skips `post_stop`.
#[tokio::test]
async fn kill_drops_a_waiting_handler_and_stop_does_not() {
    let (actor, done, counts) = parent().await;
    actor.cast(Msg::Hang).unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    actor.stop(None);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!done.is_finished(), "stop waits");
    actor.kill();
    soon("the kill", done).await.unwrap();
    counts.until(&counts.dropped, 1).await;
    assert_eq!(counts.stopped.load(Ordering::SeqCst), 0);
}

/// Fact 7.
#[tokio::test]
async fn stopping_parent_kills_children_it_does_not_wait_for() {
    let (lonely, done, _) = parent().await;
    let (_, counts) = child(&lonely).await;
    lonely.stop(None);
    soon("the end", done).await.unwrap();
    counts.until(&counts.dropped, 1).await;
    assert_eq!(counts.stopped.load(Ordering::SeqCst), 0, "killed");

    let (polite, _, _) = parent().await;
    let (_, counts) = child(&polite).await;
    polite.get_cell().stop_children_and_wait(None, Some(Duration::from_secs(5))).await;
    counts.until(&counts.stopped, 1).await;
    polite.stop(None);
}

/// Fact 7: so does one that crashes, down to the grandchildren.
#[tokio::test]
async fn crash_ends_all_descendants() {
    let (root, _, _) = parent().await;
    let (middle, _) = child(&root).await;
    let leaf = Arc::<Counts>::default();
    middle.cast(Msg::Spawn(Arc::clone(&leaf))).unwrap();
    assert_eq!(ractor::call!(middle, Msg::Ping).unwrap(), 1);
    middle.cast(Msg::Panic).unwrap();
    leaf.until(&leaf.dropped, 1).await;
    root.stop(None);
}

/// Fact 8.
#[tokio::test]
async fn start_failure_is_reported_to_the_spawner_only() {
    let (root, _, heard) = parent().await;
    let subject = TestActor { keeps: true, starts: false };
    let spawned =
        Actor::spawn_linked(None, subject, Arc::<Counts>::default(), root.get_cell()).await;
    assert!(matches!(spawned, Err(SpawnErr::StartupFailed(_))));
    assert_eq!(ractor::call!(root, Msg::Ping).unwrap(), 1);
    assert_eq!(heard.heard.load(Ordering::SeqCst), 0);
    root.stop(None);
}

/// Fact 10, and what `mailbox` makes of a dead peer.
#[tokio::test]
async fn call_ends_by_timeout_or_when_the_peer_dies() {
    let (actor, _, _) = parent().await;
    actor.cast(Msg::Hang).unwrap();
    let answer = actor.call(Msg::Ping, Some(Duration::from_millis(10))).await.unwrap();
    assert!(matches!(answer, ractor::rpc::CallResult::Timeout));
    let waiting = tokio::spawn({
        let actor = actor.clone();
        async move { actor.call(Msg::Ping, None).await }
    });
    tokio::task::yield_now().await;
    actor.kill();
    let answer = soon("the answer", waiting).await.unwrap();
    assert!(!matches!(answer, Ok(ractor::rpc::CallResult::Success(_))));
}

/// Fact 3, as a source scan: whoever has children overrides supervision.
#[test]
fn every_actor_with_children_overrides_supervision() {
    fn scan(folder: &std::path::Path, missing: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                scan(&path, missing);
                continue;
            }
            let source = read(&path);
            let overrides = |path: &std::path::Path| {
                path.is_file() && read(path).contains("fn handle_supervisor_evt")
            };
            // The parts of a module share its actor.
            let inherits =
                || folder.ancestors().any(|above| overrides(&above.with_extension("rs")));
            let spawns = ["spawn_linked(", "spawn_child(", "spawn_unless_lost("];
            let spawns = spawns.iter().any(|spawn| source.contains(spawn));
            // The helpers themselves spawn for their callers.
            let spawns = spawns && !path.ends_with("mailbox.rs");
            if spawns && !overrides(&path) && !inherits() {
                missing.push(path.display().to_string());
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the test reads the sources it is about")]
    fn read(path: &std::path::Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    let mut missing = Vec::new();
    scan(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut missing);
    assert_eq!(missing, Vec::<String>::new());
}
