//! Listeners in the network namespace of a command, which its helper opens for posse.
//!
//! The helper binds them before the command exists and sends them through a socket of their own.
//! posse accepts the connections itself, so nothing copies their bytes inside the namespace, and
//! the command needs no socket that leads out.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{Backlog, ControlMessage, MsgFlags, UnixAddr, listen, sendmsg};

use crate::Context as _;
use crate::wire::receive_first;

/// Maximum number of listeners of a command.
pub(crate) const LISTENERS_MAX: usize = 33;

/// Number of connections that wait until posse accepts them. The kernel may allow fewer.
const BACKLOG: i32 = 1024;

/// Request for listeners on the loopback of a command's network namespace. Without a network
/// namespace it is ignored.
#[derive(Debug)]
pub struct ListenerRequest {
    pub(crate) ports: Vec<u16>,
    pub(crate) channel: OwnedFd,
}

/// Receiver of the listeners of one command.
#[derive(Debug)]
pub struct ListenerReceiver {
    channel: UnixStream,
}

/// Creates a request for listeners at `ports`, the first 33 of them, and their receiver.
pub fn request_listeners(mut ports: Vec<u16>) -> io::Result<(ListenerRequest, ListenerReceiver)> {
    ports.truncate(LISTENERS_MAX);
    let (channel, other) = UnixStream::pair()?;
    Ok((ListenerRequest { ports, channel: other.into() }, ListenerReceiver { channel }))
}

impl ListenerReceiver {
    /// Waits for the listeners, each with its port. A port at which the helper could not listen is
    /// missing. Fails if the command was not started with listeners.
    pub async fn receive(self) -> io::Result<Vec<(u16, TcpListener)>> {
        self.channel.set_nonblocking(true)?;
        let channel = tokio::net::UnixStream::from_std(self.channel)?;
        let mut listeners = Vec::new();
        loop {
            channel.readable().await?;
            let mut port = [0; 2];
            let received = channel
                .try_io(tokio::io::Interest::READABLE, || receive_first(&channel, &mut port));
            let (bytes, descriptors) = match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                received => received?,
            };
            if bytes == 0 {
                break;
            }
            let descriptor = descriptors.into_iter().next().filter(|_| bytes == port.len());
            let descriptor =
                descriptor.ok_or_else(|| io::Error::other("a listener arrived incomplete"))?;
            listeners.push((u16::from_le_bytes(port), TcpListener::from(descriptor)));
            if listeners.len() == LISTENERS_MAX {
                break;
            }
        }
        if listeners.is_empty() {
            return Err(io::Error::other("the command has no listeners"));
        }
        Ok(listeners)
    }
}

/// Listens at `ports` of this process's network namespace and sends the listeners through `channel`.
/// Fails if the first port is not free; others are left out.
pub(crate) fn open_listeners(ports: &[u16], channel: BorrowedFd<'_>) -> Result<(), String> {
    for (number, port) in ports.iter().enumerate() {
        let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, *port)) {
            Ok(listener) => listener,
            Err(error) if number == 0 => return Err(format!("no listener at {port}: {error}")),
            Err(_) => continue,
        };
        let backlog = Backlog::new(BACKLOG).context("a backlog")?;
        listen(&listener, backlog).context("no longer backlog")?;
        let descriptors = [listener.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let port = port.to_le_bytes();
        let payload = [io::IoSlice::new(&port)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<UnixAddr>(channel.as_raw_fd(), &payload, &rights, flags, None)
            .context("a listener was not sent")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn listeners_arrive_with_their_ports() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = held.local_addr().unwrap().port();
        let ports = vec![free_port(), taken, free_port()];
        let (request, receiver) = request_listeners(ports.clone()).unwrap();
        open_listeners(&request.ports, request.channel.as_fd()).unwrap();
        drop(request);
        let found = receiver.receive().await.unwrap();
        let found: Vec<(u16, u16)> =
            found.iter().map(|(port, at)| (*port, at.local_addr().unwrap().port())).collect();
        assert_eq!(found, [(ports[0], ports[0]), (ports[2], ports[2])]);
        let (request, _receiver) = request_listeners(vec![taken]).unwrap();
        open_listeners(&request.ports, request.channel.as_fd()).unwrap_err();
        drop(held);
    }

    #[tokio::test]
    async fn no_listeners_are_an_error() {
        let (request, receiver) = request_listeners(vec![1]).unwrap();
        drop(request);
        receiver.receive().await.unwrap_err();
    }
}
