//! Moves bytes between a client and its server.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until, timeout};

/// Size of a buffer at first, and its maximum: a transfer that fills it gets a larger one.
const BUFFER_BYTES: (usize, usize) = (16 << 10, 512 << 10);

/// Time without a byte after which a larger buffer is dropped.
const BUFFER_KEPT_MAX: Duration = Duration::from_secs(1);

/// Number of reads after which other connections get their turn.
const READS_IN_A_ROW: u32 = 8;

/// Bytes that were moved.
#[derive(Debug, Default)]
pub(crate) struct MovedBytes {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
}

/// Reason for which a transfer was cut.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RelayError<R> {
    #[error("a side failed: {0}")]
    Io(#[from] io::Error),
    #[error("nothing was moved for too long")]
    Idle,
    /// The gate refused bytes to the server.
    #[error("{0}")]
    Refused(R),
}

/// Transfer between a client and its server.
pub(crate) struct Relay<'a> {
    pub(crate) client: &'a mut TcpStream,
    pub(crate) server: &'a mut TcpStream,
    /// Maximum number of bytes to take from the client. `None`: all.
    pub(crate) upload_max: Option<u64>,
    /// Time without a byte after which the transfer is cut.
    pub(crate) idle_max: Duration,
    pub(crate) moved: &'a MovedBytes,
}

impl Relay<'_> {
    /// Moves bytes in both directions until both have ended. `gate` is asked before bytes are sent
    /// to the server.
    pub(crate) async fn run<R, F: Future<Output = Result<(), R>>>(
        self,
        gate: impl Fn(u64) -> F,
    ) -> Result<(), RelayError<R>> {
        let Relay { client, server, upload_max, idle_max, moved } = self;
        let last = LastMove { begin: Instant::now(), milliseconds: AtomicU64::new(0) };
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let up = async {
            let upload = Pump { from: from_client, to: to_server, last: &last, moved: &moved.sent };
            upload.run(upload_max, gate).await
        };
        let down = async {
            let download =
                Pump { from: from_server, to: to_client, last: &last, moved: &moved.received };
            download.run(None, |_| std::future::ready(Ok(()))).await
        };
        let idle = async {
            loop {
                let until = last.get() + idle_max;
                if until <= Instant::now() {
                    return;
                }
                sleep_until(until).await;
            }
        };
        tokio::select! {
            ended = async { tokio::try_join!(up, down) } => ended.map(drop),
            () = idle => Err(RelayError::Idle),
        }
    }
}

/// Time of the last byte in any direction.
struct LastMove {
    begin: Instant,
    /// Milliseconds from `begin` to the last byte.
    milliseconds: AtomicU64,
}

impl LastMove {
    fn set(&self) {
        let elapsed = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.milliseconds.store(elapsed, Ordering::Relaxed);
    }

    fn get(&self) -> Instant {
        self.begin + Duration::from_millis(self.milliseconds.load(Ordering::Relaxed))
    }
}

/// One direction of a transfer.
struct Pump<'a> {
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    last: &'a LastMove,
    moved: &'a AtomicU64,
}

impl Pump<'_> {
    /// Moves bytes until the end of the source, or `max` bytes, and then ends the other side too,
    /// unless there is a maximum.
    async fn run<R, F: Future<Output = Result<(), R>>>(
        mut self,
        max: Option<u64>,
        gate: impl Fn(u64) -> F,
    ) -> Result<(), RelayError<R>> {
        let mut left = max.unwrap_or(u64::MAX);
        let mut buffer = TransferBuffer::default();
        let mut reads: u32 = 0;
        while left > 0 {
            let read = buffer.fill(&self.from).await?;
            if read == 0 {
                break;
            }
            let taken = usize::try_from(left).unwrap_or(usize::MAX).min(read);
            gate(taken as u64).await.map_err(RelayError::Refused)?;
            self.to.write_all(&buffer.bytes[..taken]).await?;
            left -= taken as u64;
            self.moved.fetch_add(taken as u64, Ordering::Relaxed);
            self.last.set();
            buffer.grow_after(read);
            reads += 1;
            if reads.is_multiple_of(READS_IN_A_ROW) {
                tokio::task::yield_now().await;
            }
        }
        if max.is_none() {
            self.to.shutdown().await?;
        }
        Ok(())
    }
}

/// Buffer of one direction. An idle connection holds none, 1 s after a fast transfer.
#[derive(Debug, Default)]
struct TransferBuffer {
    bytes: Vec<u8>,
}

impl TransferBuffer {
    /// Waits for bytes of `from` and reads them. Returns their number; 0 at the end.
    async fn fill(&mut self, from: &ReadHalf<'_>) -> io::Result<usize> {
        loop {
            if self.bytes.is_empty() {
                from.readable().await?;
                self.bytes.resize(BUFFER_BYTES.0, 0);
            }
            match from.try_read(&mut self.bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Between the parts of a fast transfer the buffer stays.
                    let is_grown = self.bytes.len() > BUFFER_BYTES.0;
                    if is_grown && let Ok(ready) = timeout(BUFFER_KEPT_MAX, from.readable()).await {
                        ready?;
                    } else {
                        self.bytes = Vec::new();
                    }
                }
                read => return read,
            }
        }
    }

    /// Doubles the buffer, up to its maximum, if the last `read` bytes have filled it.
    fn grow_after(&mut self, read: usize) {
        let size = self.bytes.len();
        if read == size && size < BUFFER_BYTES.1 {
            self.bytes.resize(size * 2, 0);
        }
    }
}

/// Sends `answer` to a client that gets nothing else, and closes the connection so that the answer
/// arrives also if the client still sends.
pub(crate) async fn close_with(mut client: TcpStream, answer: &[u8], patience: Duration) {
    let work = async {
        client.write_all(answer).await?;
        client.shutdown().await?;
        let mut rest = [0; 4096];
        while client.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // The client may be gone, or not listen.
    timeout(patience, work).await.ok();
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_idle_connection_holds_no_buffer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut from = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut sender, _) = listener.accept().await.unwrap();
        let (from, _to) = from.split();
        let mut buffer = TransferBuffer::default();
        let mut left: usize = 64 << 10;
        sender.write_all(&vec![7; left]).await.unwrap();
        while left > 0 {
            let read = buffer.fill(&from).await.unwrap();
            buffer.grow_after(read);
            left -= read;
        }
        assert!(buffer.bytes.len() > BUFFER_BYTES.0);
        timeout(BUFFER_KEPT_MAX * 2, buffer.fill(&from)).await.unwrap_err();
        assert_eq!(buffer.bytes.capacity(), 0);
        sender.write_all(b"more").await.unwrap();
        assert_eq!(buffer.fill(&from).await.unwrap(), 4);
        assert_eq!(buffer.bytes.len(), BUFFER_BYTES.0);
    }
}
