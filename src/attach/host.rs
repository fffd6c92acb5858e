//! Server side: accepts attach connections up to a limit and ends them with the session.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use posse_actors::root_session::SessionHandle;
use posse_base::failure::ErrorCode;
use posse_frontend::remote_session::{RevertRequest, SocketGuard};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::SocketAddress;
use crate::connection::{handshake, serve};
use crate::handshake::{AttachRefusal, HostReply, line};

/// Limits of the resources that clients can use in the process that owns a session.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "bounds end so")]
pub(crate) struct AttachBounds {
    /// Maximum number of simultaneously attached front ends. A further one is refused with
    /// `ATT005`.
    pub(crate) connections_max: usize,
    /// Maximum number of connections that have not sent their first line; a further one replaces
    /// the oldest, so that silent clients do not keep others out.
    pub(crate) handshakes_max: usize,
    /// Time limit for the first line of a client.
    pub(crate) handshake_max: Duration,
    /// Time limit for sending one line to a client. A client that reads too slowly for that is
    /// disconnected.
    pub(crate) stalled_read_max: Duration,
    /// Number of invalid lines after which a client is disconnected. Instructions of an observer
    /// count as invalid.
    pub(crate) invalid_lines_max: u32,
    /// Time that the end of a session waits for clients that have not read everything.
    pub(crate) shutdown_max: Duration,
    /// Time limit for sending a client the reason of its rejection or disconnection.
    pub(crate) refusal_max: Duration,
    /// Time limit for the answer of the front end to a request for a return to an earlier state.
    pub(crate) revert_max: Duration,
}

impl Default for AttachBounds {
    fn default() -> AttachBounds {
        AttachBounds {
            connections_max: 16,
            handshakes_max: 64,
            handshake_max: Duration::from_secs(5),
            stalled_read_max: Duration::from_mins(1),
            invalid_lines_max: 100,
            shutdown_max: Duration::from_millis(300),
            refusal_max: Duration::from_millis(200),
            revert_max: Duration::from_secs(30),
        }
    }
}

/// A session that is served, and the channel for requests to its front end.
#[derive(Debug, Clone)]
pub(crate) struct ServedSession {
    pub(crate) session: SessionHandle,
    pub(crate) reverts: mpsc::Sender<RevertRequest>,
}

/// Attach server of a session that this process owns.
#[derive(Debug)]
pub struct Host {
    end: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    shutdown_max: Duration,
}

impl Host {
    /// Serves `session` at `place` until the host is closed, which gives attached clients 300 ms to
    /// read the rest, or dropped, which disconnects them at once. Must run within a tokio runtime.
    ///
    /// The socket is bound asynchronously. If it cannot be bound, the session runs without attach
    /// support.
    /// Requests of clients to return to an earlier state go to `reverts`.
    pub fn begin(
        session: SessionHandle,
        place: SocketAddress,
        reverts: mpsc::Sender<RevertRequest>,
    ) -> Host {
        Host::within(ServedSession { session, reverts }, place, AttachBounds::default())
    }

    pub(crate) fn within(
        session: ServedSession,
        place: SocketAddress,
        bounds: AttachBounds,
    ) -> Host {
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            let listener = place.listen().and_then(UnixListener::from_std);
            // Held as long as this process holds the lock of the session, so the socket is ours.
            let _withdrawn = SocketRemover(place.clone());
            match listener {
                Ok(listener) => listen(&listener, &session, &Arc::new(place), bounds, ended).await,
                Err(error) => {
                    tracing::warn!(%error, "this session cannot be attached to");
                    ended.await.ok();
                }
            }
        });
        Host { end: Some(end), task, shutdown_max: bounds.shutdown_max }
    }
}

/// Removes the socket when dropped, however the listener ends.
struct SocketRemover(SocketAddress);

impl Drop for SocketRemover {
    fn drop(&mut self) {
        self.0.remove_socket();
    }
}

impl SocketGuard for Host {
    fn close(mut self: Box<Self>) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            self.end.take();
            let limit = self.shutdown_max;
            timeout(limit, &mut self.task).await.ok();
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts connections until the sender of `ended` is dropped. Then drops the clients that are not
/// admitted yet, and waits until the admitted ones have been served.
async fn listen(
    listener: &UnixListener,
    session: &ServedSession,
    place: &Arc<SocketAddress>,
    bounds: AttachBounds,
    mut ended: oneshot::Receiver<()>,
) {
    let mut served = JoinSet::new();
    let mut handshakes = JoinSet::new();
    let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        tokio::select! {
            biased;
            _ = &mut ended => break,
            Some(_) = served.join_next() => (),
            Some(client) = handshakes.join_next() => {
                let Ok(Some(client)) = client else { continue };
                if served.len() < bounds.connections_max {
                    served.spawn(serve(client, session.clone(), bounds));
                } else {
                    let most = bounds.connections_max;
                    let message = format!("the limit of {most} attached front ends is reached");
                    let refused = AttachRefusal::new(ErrorCode::AttachLimit, message);
                    client.refuse(refused, bounds).await;
                }
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    oldest_first.retain(|handshake| !handshake.is_finished());
                    if oldest_first.len() >= bounds.handshakes_max {
                        // Lets handshakes that have just started read a first line that has
                        // arrived.
                        tokio::task::yield_now().await;
                        if let Some(oldest) = oldest_first.pop_front() {
                            oldest.abort();
                        }
                    }
                    let place = Arc::clone(place);
                    let handshake = async move { handshake(stream, &place, bounds).await };
                    oldest_first.push_back(handshakes.spawn(handshake));
                }
                // Probably too many open files, which may be a temporary condition.
                Err(error) => {
                    tracing::warn!(%error, "failed to accept an attach connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    drop(handshakes);
    while served.join_next().await.is_some() {}
}

/// Sends the reason of a rejection, within the time `limit`, and closes the connection.
pub(crate) async fn refuse(mut stream: UnixStream, refused: AttachRefusal, limit: Duration) {
    tracing::info!(code = refused.code, message = refused.message, "attach request rejected");
    let answer = line(&HostReply::refused(refused));
    // A short line fits into the socket's buffer even if the client does not read.
    timeout(limit, stream.write_all(&answer)).await.ok();
}

#[cfg(test)]
mod tests {
    use posse_actors::event::Event;
    use posse_actors::testing::{ModelStep, RunningSession, SessionBuilder};

    use super::*;
    use crate::handshake::Hello;
    use crate::{AttachOptions, join};
    use posse_frontend::remote_session::{AttachRole, RemoteMessage};

    /// The session, without a front end that takes requests.
    fn served(stage: &RunningSession) -> ServedSession {
        ServedSession { session: stage.session.clone(), reverts: mpsc::channel(1).0 }
    }

    /// Waits for a warning that contains `text`.
    async fn warned(stage: &mut RunningSession, text: &str) {
        let has =
            |event: &Event| matches!(event, Event::Warning { message } if message.contains(text));
        stage.until(has).await;
    }

    fn joining(role: AttachRole) -> AttachOptions {
        AttachOptions { role, after: 0, last: None, permission_mode: None }
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_disconnected_with_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let place = SocketAddress::new(dir.path(), dir.path().join("attach.sock"));
        let bench = SessionBuilder::new(vec![ModelStep::Say(vec!["x".repeat(8 << 20)])]);
        let mut stage = bench.start().await;
        let stalled_read_max = Duration::from_millis(50);
        let bounds = AttachBounds { stalled_read_max, ..AttachBounds::default() };
        let host = Box::new(Host::within(served(&stage), place.clone(), bounds));
        // The socket is bound when the host task first runs.
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
    async fn silent_connections_do_not_keep_a_front_end_out() {
        let dir = tempfile::tempdir().unwrap();
        let place = SocketAddress::new(dir.path(), dir.path().join("attach.sock"));
        let stage = SessionBuilder::new(vec![ModelStep::Say(vec!["hi".to_owned()])]).start().await;
        // No time limit helps here.
        let bounds =
            AttachBounds { handshake_max: Duration::from_hours(1), ..AttachBounds::default() };
        let host = Box::new(Host::within(served(&stage), place.clone(), bounds));
        while !dir.path().join("attach.sock").exists() {
            tokio::task::yield_now().await;
        }
        let mut silent = Vec::new();
        for _ in 0..500 {
            silent.push(UnixStream::connect(place.address().unwrap().path).await.unwrap());
        }
        let joined = join(&place, joining(AttachRole::Observer)).await.unwrap();
        drop(silent);
        drop(joined);
        drop(stage.end().await);
        host.close().await;
    }

    #[tokio::test]
    async fn clients_are_limited_and_all_receive_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let place = SocketAddress::new(dir.path(), dir.path().join("attach.sock"));
        let stage = SessionBuilder::new(vec![ModelStep::Say(vec!["hi".to_owned()])]).start().await;
        let bounds = AttachBounds { connections_max: 2, ..AttachBounds::default() };
        let host = Box::new(Host::within(served(&stage), place.clone(), bounds));
        while !dir.path().join("attach.sock").exists() {
            tokio::task::yield_now().await;
        }
        let mut remotes = Vec::new();
        for _ in 0..2 {
            remotes.push(join(&place, joining(AttachRole::Observer)).await.unwrap());
        }
        let refused = join(&place, joining(AttachRole::Observer)).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::AttachLimit);
        // A client that leaves frees a connection.
        drop(remotes.pop());
        let again = loop {
            match join(&place, joining(AttachRole::Observer)).await {
                Ok(again) => break again,
                Err(refused) => assert_eq!(refused.code, ErrorCode::AttachLimit),
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
