//! The end of the process that owns the session: who may come in, and how many.

use std::sync::Arc;
use std::time::Duration;

use posse_actors::root_session::SessionHandle;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::attach::SocketAddress;
use crate::attach::connection::serve;
use crate::attach::handshake::{AttachRefusal, HostReply, line};
use crate::frontend::remote_session::SocketGuard;

/// Bounds of what others can make the owner of a session do.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "bounds end so")]
pub(crate) struct AttachBounds {
    /// Connections at a time.
    pub(crate) connections_max: usize,
    /// How long whoever connects may take for the first line.
    pub(crate) hello_max: Duration,
    /// How long whoever joined may take nothing of what waits for them.
    pub(crate) standstill_max: Duration,
    /// Lines that make no sense.
    pub(crate) complaints_max: u32,
    /// How long the end of the session waits for those who have not heard it yet.
    pub(crate) farewell_max: Duration,
    /// How long a word to somebody who may not join is worth waiting.
    pub(crate) refusal_max: Duration,
}

impl Default for AttachBounds {
    fn default() -> AttachBounds {
        AttachBounds {
            connections_max: 16,
            hello_max: Duration::from_secs(5),
            standstill_max: Duration::from_mins(1),
            complaints_max: 100,
            farewell_max: Duration::from_millis(300),
            refusal_max: Duration::from_millis(200),
        }
    }
}

/// Whoever owns a session, and lets others join it.
#[derive(Debug)]
pub struct Host {
    end: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    farewell_max: Duration,
}

impl Host {
    /// Lets others join `session` at `place`, until the host is closed or dropped. Within a runtime.
    ///
    /// The socket is bound when the runtime comes to it; a session whose socket cannot be bound runs
    /// all the same, and cannot be joined.
    pub fn begin(session: SessionHandle, place: SocketAddress) -> Host {
        Host::within(session, place, AttachBounds::default())
    }

    pub(crate) fn within(
        session: SessionHandle,
        place: SocketAddress,
        bounds: AttachBounds,
    ) -> Host {
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            let listener = place.listen().and_then(UnixListener::from_std);
            // As long as this lives, so does the lock of the session, and the socket is ours.
            let _withdrawn = Withdrawn(place.clone());
            match listener {
                Ok(listener) => listen(&listener, &session, &Arc::new(place), bounds, ended).await,
                Err(error) => {
                    tracing::warn!(%error, "nobody can join this session");
                    ended.await.ok();
                }
            }
        });
        Host { end: Some(end), task, farewell_max: bounds.farewell_max }
    }
}

/// Removes the socket, however listening ends.
struct Withdrawn(SocketAddress);

impl Drop for Withdrawn {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

impl SocketGuard for Host {
    fn close(mut self: Box<Self>) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            self.end.take();
            let limit = self.farewell_max;
            timeout(limit, &mut self.task).await.ok();
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves whoever comes, and after the end those who are still there.
async fn listen(
    listener: &UnixListener,
    session: &SessionHandle,
    place: &Arc<SocketAddress>,
    bounds: AttachBounds,
    mut ended: oneshot::Receiver<()>,
) {
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            _ = &mut ended => break,
            Some(_) = served.join_next() => (),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if served.len() < bounds.connections_max => {
                    let (session, place) = (session.clone(), Arc::clone(place));
                    served.spawn(async move { serve(stream, session, &place, bounds).await });
                }
                Ok((stream, _)) => {
                    let most = bounds.connections_max;
                    let message = format!("{most} front ends have joined already");
                    refuse(stream, AttachRefusal::new("ATT005", message), bounds.refusal_max).await;
                }
                // Too many files are open, perhaps; there may be fewer soon.
                Err(error) => {
                    tracing::warn!(%error, "somebody could not join");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    while served.join_next().await.is_some() {}
}

/// Says why, to somebody who may not listen.
pub(crate) async fn refuse(mut stream: UnixStream, refused: AttachRefusal, limit: Duration) {
    tracing::info!(code = refused.code, message = refused.message, "somebody may not join");
    let answer = line(&HostReply::refused(refused));
    // A short line goes into the buffer of the socket, whoever reads.
    timeout(limit, stream.write_all(&answer)).await.ok();
}

#[cfg(test)]
mod tests {
    use posse_actors::event::Event;
    use posse_actors::testing::{ModelStep, RunningSession, SessionBuilder};

    use super::*;
    use crate::attach::handshake::Hello;
    use crate::attach::{Joining, join};
    use crate::frontend::remote_session::{AttachRole, RemoteMessage};

    /// Waits for a warning that has this in it.
    async fn warned(stage: &mut RunningSession, text: &str) {
        let has =
            |event: &Event| matches!(event, Event::Warning { message } if message.contains(text));
        stage.until(has).await;
    }

    fn joining(role: AttachRole) -> Joining {
        Joining { role, after: 0, last: None }
    }

    #[tokio::test]
    async fn who_reads_nothing_is_let_go_of_with_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let place = SocketAddress::new(dir.path(), dir.path().join("attach.sock"));
        let bench = SessionBuilder::new(vec![ModelStep::Say(vec!["x".repeat(8 << 20)])]);
        let mut stage = bench.start().await;
        let standstill_max = Duration::from_millis(50);
        let bounds = AttachBounds { standstill_max, ..AttachBounds::default() };
        let host = Box::new(Host::within(stage.session.clone(), place.clone(), bounds));
        // It is bound as soon as the host has its turn.
        while !dir.path().join("attach.sock").exists() {
            tokio::task::yield_now().await;
        }
        let mut deaf = UnixStream::connect(place.address().unwrap().path).await.unwrap();
        let hello = Hello::new(place.token().unwrap(), AttachRole::Controller, 0, None);
        deaf.write_all(&line(&hello)).await.unwrap();
        warned(&mut stage, "joined this session").await;
        stage.play("go").await;
        warned(&mut stage, "left this session (it read nothing for 0.05 s)").await;
        drop(stage.end().await);
        host.close().await;
        assert!(!dir.path().join("attach.sock").exists());
    }

    #[tokio::test]
    async fn only_so_many_join_and_all_hear_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let place = SocketAddress::new(dir.path(), dir.path().join("attach.sock"));
        let stage = SessionBuilder::new(vec![ModelStep::Say(vec!["hi".to_owned()])]).start().await;
        let bounds = AttachBounds { connections_max: 2, ..AttachBounds::default() };
        let host = Box::new(Host::within(stage.session.clone(), place.clone(), bounds));
        while !dir.path().join("attach.sock").exists() {
            tokio::task::yield_now().await;
        }
        let mut remotes = Vec::new();
        for _ in 0..2 {
            remotes.push(join(&place, joining(AttachRole::Observer)).await.unwrap());
        }
        let refused = join(&place, joining(AttachRole::Observer)).await.unwrap_err();
        assert_eq!(refused.code, "ATT005");
        // Whoever leaves makes room.
        drop(remotes.pop());
        let again = loop {
            match join(&place, joining(AttachRole::Observer)).await {
                Ok(again) => break again,
                Err(refused) => assert_eq!(refused.code, "ATT005"),
            }
        };
        remotes.push(again);
        drop(stage.end().await);
        host.close().await;
        for mut remote in remotes {
            let mut last = Vec::new();
            while let Some(heard) = remote.messages.recv().await {
                if let RemoteMessage::Event(line) = heard {
                    last = line;
                }
            }
            let last = String::from_utf8(last).unwrap();
            assert!(last.contains(r#""type":"session.ended""#), "{last}");
        }
    }
}
