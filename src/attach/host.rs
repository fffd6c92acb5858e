//! The end of the process that owns the session: who may come in, and how many.

use std::sync::Arc;
use std::time::Duration;

use posse_actors::root_session::SessionHandle;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::attach::Place;
use crate::attach::hello::{Answer, Refused, line};
use crate::attach::served::serve;
use crate::talk::joining::Door;

/// Bounds of what others can make the owner of a session do.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "bounds end so")]
pub(crate) struct Bounds {
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

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
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
    pub fn begin(session: SessionHandle, place: Place) -> Host {
        Host::within(session, place, Bounds::default())
    }

    pub(crate) fn within(session: SessionHandle, place: Place, bounds: Bounds) -> Host {
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
struct Withdrawn(Place);

impl Drop for Withdrawn {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

impl Door for Host {
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
    place: &Arc<Place>,
    bounds: Bounds,
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
                    refuse(stream, Refused::new("ATT005", message), bounds.refusal_max).await;
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
pub(crate) async fn refuse(mut stream: UnixStream, refused: Refused, limit: Duration) {
    tracing::info!(code = refused.code, message = refused.message, "somebody may not join");
    let answer = line(&Answer::refused(refused));
    // A short line goes into the buffer of the socket, whoever reads.
    timeout(limit, stream.write_all(&answer)).await.ok();
}
