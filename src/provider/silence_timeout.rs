//! Silence timeouts of a reply: a limit for the time without bytes, and one for the time without
//! content.
//!
//! One timer serves the whole reply. It is set to the earlier of both deadlines and set to a later
//! time only when it fires: a timer per chunk would cost as much as the chunk.
//!
//! While a process is stopped or suspended, it cannot receive data. A timer that fires far too late
//! shows that this happened, and both limits start again at that moment.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::decode::ChunkSource;

/// Result of reading once from a source: a chunk, `None` at the end of the source, or the text of
/// an error.
pub(crate) type Brought = Result<Option<Bytes>, String>;

/// If a timer fires later than planned by more than this, the process was suspended. Even on a busy
/// machine the delay is shorter.
const ABSENT: Duration = Duration::from_secs(1);

/// Limit that a silent server exceeded, with the value of the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Quiet {
    /// No byte arrived for this long.
    #[error("not a byte for {} s (timeouts.silence)", .0.as_secs_f64())]
    Bytes(Duration),
    /// No content arrived for this long, although other bytes may have arrived.
    #[error("no content for {} s (timeouts.idle)", .0.as_secs_f64())]
    Content(Duration),
}

/// Timer for one reply, with a limit for the time without bytes and one for the time without
/// content.
#[derive(Debug)]
pub(crate) struct Watch {
    alarm: Pin<Box<Sleep>>,
    /// Maximum time without a byte, counted from the beginning of each wait.
    silence: Duration,
    /// Maximum time without content.
    idle: Duration,
    /// Time at which the content limit is exceeded, unless content arrives before.
    content_by: Instant,
    /// True if content arrived since the last wait began: the next wait sets `content_by` anew.
    heard: bool,
}

impl Watch {
    /// Starts the timer. `silence`: maximum time without a byte; `idle`: maximum time without
    /// content.
    pub(crate) fn new(silence: Duration, idle: Duration) -> Watch {
        let content_by = later(Instant::now(), idle);
        let first = content_by.min(later(Instant::now(), silence));
        let alarm = Box::pin(sleep_until(first));
        Watch { alarm, silence, idle, content_by, heard: false }
    }

    /// Records that content has arrived. The content limit becomes `idle`, counted from the next
    /// wait.
    pub(crate) fn extend(&mut self, idle: Duration) {
        self.heard = true;
        self.idle = idle;
    }

    /// Returns the next item of `source`, or the limit that was exceeded. `silence` counts from the
    /// beginning of this wait, `idle` from the first wait after the last content: a slow reader
    /// does not count as a silent server.
    pub(crate) async fn next(&mut self, source: &mut impl ChunkSource) -> Result<Brought, Quiet> {
        let mut chunk = pin!(source.next());
        let mut silent_at = None;
        poll_fn(|context| {
            if let Poll::Ready(chunk) = chunk.as_mut().poll(context) {
                return Poll::Ready(Ok(chunk));
            }
            // The clock is read once per wait, and not at all without a wait.
            let silent_at = silent_at.get_or_insert_with(|| self.begin_wait());
            self.poll_alarm(context, silent_at).map(Err)
        })
        .await
    }

    fn begin_wait(&mut self) -> Instant {
        let now = Instant::now();
        if std::mem::take(&mut self.heard) {
            self.content_by = later(now, self.idle);
        }
        later(now, self.silence)
    }

    fn poll_alarm(&mut self, context: &mut Context<'_>, silent_at: &mut Instant) -> Poll<Quiet> {
        let due = self.content_by.min(*silent_at);
        if due < self.alarm.deadline() {
            self.alarm.as_mut().reset(due);
        }
        while self.alarm.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            if was_absent(self.alarm.deadline(), now) {
                self.content_by = later(now, self.idle);
                *silent_at = later(now, self.silence);
            }
            if self.content_by <= now {
                return Poll::Ready(Quiet::Content(self.idle));
            }
            if *silent_at <= now {
                return Poll::Ready(Quiet::Bytes(self.silence));
            }
            self.alarm.as_mut().reset(self.content_by.min(*silent_at));
        }
        Poll::Pending
    }
}

fn was_absent(due: Instant, now: Instant) -> bool {
    now.saturating_duration_since(due) > ABSENT
}

/// Awaits `future` for at most `limit`; `None`: timeout. If the timer fires so late that the
/// process must have been suspended, the limit starts again.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut alarm = pin!(sleep_until(later(Instant::now(), limit)));
    poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        while alarm.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            if !was_absent(alarm.deadline(), now) {
                return Poll::Ready(None);
            }
            alarm.as_mut().reset(later(now, limit));
        }
        Poll::Pending
    })
    .await
}

/// `now` plus `wait`. A `wait` of more than one year counts as one year, so that the sum cannot
/// overflow.
fn later(now: Instant, wait: Duration) -> Instant {
    const NEVER: Duration = Duration::from_hours(24 * 365);
    now + wait.min(NEVER)
}

/// Returns the next item of `source` if it is ready now, or after one yield. `None`: not ready. The
/// yield lets the connection task run, which delivers one chunk at a time.
pub(crate) async fn poll_briefly(source: &mut impl ChunkSource) -> Option<Brought> {
    match poll_ready(source).await {
        None => {
            yield_now().await;
            poll_ready(source).await
        }
        brought => brought,
    }
}

/// Returns the next item of `source` if it is ready now. Does not wait.
async fn poll_ready(source: &mut impl ChunkSource) -> Option<Brought> {
    // Uses the waker of the next wait, so the source need not store another.
    poll_fn(|context| {
        Poll::Ready(match pin!(source.next()).poll(context) {
            Poll::Ready(brought) => Some(brought),
            Poll::Pending => None,
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tokio::time::sleep;

    use super::*;

    /// Brings a chunk after each of these many milliseconds, and then nothing.
    struct Slow(VecDeque<u64>);

    impl ChunkSource for Slow {
        async fn next(&mut self) -> Brought {
            match self.0.front() {
                Some(wait) => {
                    sleep(Duration::from_millis(*wait)).await;
                    self.0.pop_front();
                    Ok(Some(Bytes::new()))
                }
                None => std::future::pending().await,
            }
        }
    }

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[tokio::test]
    async fn silence_ends_its_own_wait() {
        let mut watch = Watch::new(ms(400), Duration::MAX);
        let mut source = Slow([180, 180, 180].into());
        let began = Instant::now();
        for _ in 0..3 {
            assert!(watch.next(&mut source).await.is_ok());
        }
        assert_eq!(watch.next(&mut source).await.unwrap_err(), Quiet::Bytes(ms(400)));
        assert!(began.elapsed() >= ms(940), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn empty_chunks_do_not_extend_the_content_timeout() {
        let mut watch = Watch::new(Duration::MAX, ms(100));
        let mut source = Slow([30; 20].into());
        watch.next(&mut source).await.unwrap().unwrap();
        watch.extend(ms(100));
        let began = Instant::now();
        let quiet = loop {
            if let Err(quiet) = watch.next(&mut source).await {
                break quiet;
            }
        };
        assert_eq!(quiet, Quiet::Content(ms(100)));
        assert!(began.elapsed() >= ms(100) && !source.0.is_empty(), "{:?}", began.elapsed());
    }

    /// Blocks the whole process, as a stop does.
    fn stop_everything(time: Duration) {
        std::thread::sleep(time);
    }

    #[tokio::test]
    async fn suspended_process_restarts_the_timeout() {
        let stopped = ABSENT + ms(600);
        for (silence, idle, quiet) in [
            (ms(300), Duration::MAX, Quiet::Bytes(ms(300))),
            (Duration::MAX, ms(300), Quiet::Content(ms(300))),
        ] {
            let mut watch = Watch::new(silence, idle);
            let mut source = Slow([].into());
            let mut next = pin!(watch.next(&mut source));
            let waits = tokio::time::timeout(ms(20), next.as_mut()).await;
            assert!(waits.is_err(), "nothing came, and it is not too long");
            stop_everything(stopped);
            let continued = Instant::now();
            assert_eq!(next.await.unwrap_err(), quiet);
            assert!(continued.elapsed() >= ms(290), "{:?}", continued.elapsed());
        }
        // Something comes after all.
        let mut watch = Watch::new(ms(300), Duration::MAX);
        let mut source = Slow([100].into());
        let mut next = pin!(watch.next(&mut source));
        assert!(tokio::time::timeout(ms(20), next.as_mut()).await.is_err());
        stop_everything(stopped);
        assert!(next.await.is_ok());
    }

    #[tokio::test]
    async fn timeout_excludes_suspended_time() {
        let began = Instant::now();
        let answer = within(ms(300), async {
            sleep(ms(20)).await;
            stop_everything(ABSENT + ms(600));
            sleep(ms(100)).await;
            7
        });
        assert_eq!(answer.await, Some(7));
        assert!(began.elapsed() >= ABSENT);
        assert_eq!(within(ms(50), std::future::pending::<()>()).await, None);
        assert_eq!(within(Duration::MAX, async { 1 }).await, Some(1));
    }

    #[tokio::test]
    async fn shorter_timeout_applies_at_once_and_late_reading_is_no_silence() {
        let mut watch = Watch::new(ms(50), Duration::from_hours(1));
        let mut source = Slow([0].into());
        sleep(ms(80)).await;
        assert!(watch.next(&mut source).await.is_ok());
        watch.extend(ms(20));
        assert_eq!(watch.next(&mut source).await.unwrap_err(), Quiet::Content(ms(20)));
    }
}
