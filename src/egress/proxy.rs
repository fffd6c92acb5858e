//! Proxy of a session: listeners of commands, and their connections.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::account::CommandAccounts;
use crate::approval::{Approval, ConnectionApprover, ConnectionQuestion, QuestionCause};
use crate::destination::{Destination, DestinationHost};
use crate::judge::{EgressPolicy, EgressRefusal, EgressVerdict, judge};
use crate::lock::lock;
use crate::meter::{UploadMeter, UploadMeters};
use crate::record::ConnectionObserver;
use crate::relay::{Relay, RelayError, close_with};
use crate::request::{
    ClientProtocol, ProxyRequest, RequestError, answer_http, answer_socks, read_request,
    socks_reply,
};
use crate::resolver::NameResolver;
use crate::worker::Worker;

/// Time before the next try after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time for a client to take the answer that ends its connection.
const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// Time that the end of a command waits for the account of its connections.
const ACCOUNT_MAX: Duration = Duration::from_secs(1);

/// Limits of the proxy of a session.
#[derive(Debug, Clone)]
pub struct EgressLimits {
    /// Maximum number of connections of one command; further ones wait.
    pub command_connections: usize,
    /// Maximum number of connections of the session; further ones wait.
    pub session_connections: usize,
    /// Time for a client to send its request.
    pub request: Duration,
    /// Time for a lookup.
    pub lookup: Duration,
    /// Time for a server to accept a connection, by each of its addresses.
    pub connect: Duration,
    /// Time without a byte after which a connection is cut.
    pub idle: Duration,
    /// Maximum number of domains and ports about which one command asks.
    pub questions: usize,
    /// Number of connections of one command that are recorded one by one; further ones are counted.
    pub records: usize,
    /// Number of bytes that a session sends to a domain before a person is asked.
    pub upload_bytes: u64,
}

impl Default for EgressLimits {
    fn default() -> EgressLimits {
        EgressLimits {
            command_connections: 128,
            session_connections: 256,
            request: Duration::from_secs(10),
            lookup: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            idle: Duration::from_mins(15),
            questions: 16,
            records: 256,
            upload_bytes: 1 << 20,
        }
    }
}

/// Listeners in the network namespace of a command.
#[derive(Debug)]
pub struct CommandListeners {
    /// Listener of the proxy.
    pub proxy: std::net::TcpListener,
    /// Listeners that lead to the loopback port of the host with the same number.
    pub forwards: Vec<(u16, std::net::TcpListener)>,
}

/// Future of the listeners of a command that is starting. An error means that it did not start.
pub type ListenersFuture = Pin<Box<dyn Future<Output = io::Result<CommandListeners>> + Send>>;

/// Proxy of a session, which serves the listeners of its commands.
pub struct Egress {
    session: Arc<EgressSession>,
    worker: Worker,
}

struct EgressSession {
    policy: EgressPolicy,
    resolver: Arc<dyn NameResolver>,
    limits: EgressLimits,
    connections: Arc<Semaphore>,
    meters: UploadMeters,
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress").field("policy", &self.session.policy).finish_non_exhaustive()
    }
}

impl Egress {
    /// Creates the proxy of a session. Its thread starts with the first command.
    pub fn new(
        policy: EgressPolicy,
        resolver: Arc<dyn NameResolver>,
        limits: EgressLimits,
    ) -> Egress {
        let connections = Arc::new(Semaphore::new(limits.session_connections));
        let meters = UploadMeters::new(limits.upload_bytes);
        let session = EgressSession { policy, resolver, limits, connections, meters };
        Egress { session: Arc::new(session), worker: Worker::default() }
    }

    /// Loopback ports of the host that commands reach at the same number.
    pub fn loopback_ports(&self) -> Vec<u16> {
        self.session.policy.loopback_ports()
    }

    /// True if a person would be asked about a connection to `destination`.
    pub fn asks_about(&self, destination: &Destination) -> bool {
        judge(&self.session.policy, destination, false, None) == EgressVerdict::Ask
    }

    /// Serves the listeners of a command as soon as they exist, until the lease is dropped. A person
    /// has already allowed the command to connect to `known`.
    pub fn serve(
        &self,
        listeners: ListenersFuture,
        known: Vec<Destination>,
        approver: Arc<dyn ConnectionApprover>,
        observer: ConnectionObserver,
    ) -> EgressLease {
        let limits = &self.session.limits;
        let answers: HashMap<_, _> = known.into_iter().map(|each| (each, answered())).collect();
        let command = Arc::new(CommandState {
            session: Arc::clone(&self.session),
            connections: Arc::new(Semaphore::new(limits.command_connections)),
            approver,
            accounts: CommandAccounts::new(observer, limits.records),
            answers_max: limits.questions + answers.len(),
            answers: Mutex::new(answers),
            upload_refusals: Mutex::default(),
        });
        let (stop, stopped) = watch::channel(());
        let (done, ended) = oneshot::channel::<()>();
        let serving = Arc::clone(&command);
        self.worker.spawn(async move {
            serving.serve(listeners, stopped).await;
            serving.accounts.report_summed();
            done.send(()).ok();
        });
        EgressLease { command, stop: Some(stop), ended: Some(ended) }
    }
}

/// Access of one command to the proxy. Dropping it cuts the connections.
pub struct EgressLease {
    command: Arc<CommandState>,
    stop: Option<watch::Sender<()>>,
    ended: Option<oneshot::Receiver<()>>,
}

impl std::fmt::Debug for EgressLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EgressLease")
    }
}

impl EgressLease {
    /// Cuts the connections, waits until they are recorded, and returns one line for each
    /// destination that was refused, for the first ones.
    pub async fn finish(mut self) -> Vec<String> {
        drop(self.stop.take());
        if self.command.accounts.has_connections()
            && let Some(ended) = self.ended.take()
        {
            // An error means that the thread has ended.
            timeout(ACCOUNT_MAX, ended).await.ok();
        }
        self.command.accounts.lines()
    }
}

fn answered() -> Arc<OnceCell<Approval>> {
    Arc::new(OnceCell::new_with(Some(Approval::Allowed { lasting: false })))
}

struct CommandState {
    session: Arc<EgressSession>,
    connections: Arc<Semaphore>,
    approver: Arc<dyn ConnectionApprover>,
    accounts: CommandAccounts,
    /// Maximum number of `answers`: those that came with the command, and one for each question.
    answers_max: usize,
    /// Answers about destinations, and questions that wait for one.
    answers: Mutex<HashMap<Destination, Arc<OnceCell<Approval>>>>,
    /// Hosts to which the command may send no more, each with the reason.
    upload_refusals: Mutex<HashMap<DestinationHost, String>>,
}

impl CommandState {
    /// Serves until the sender of `stopped` is dropped.
    async fn serve(self: &Arc<Self>, listeners: ListenersFuture, mut stopped: watch::Receiver<()>) {
        let listeners = tokio::select! {
            listeners = listeners => listeners,
            _ = stopped.changed() => return,
        };
        let listeners = match listeners {
            Ok(listeners) => listeners,
            Err(error) => return tracing::debug!(%error, "a command has no proxy"),
        };
        let mut accepting = JoinSet::new();
        let all = [(None, listeners.proxy)].into_iter();
        let forwards = listeners.forwards.into_iter().map(|(port, socket)| (Some(port), socket));
        for (forward, socket) in all.chain(forwards) {
            let listener =
                socket.set_nonblocking(true).and_then(|()| TcpListener::from_std(socket));
            match listener {
                Ok(listener) => {
                    let (command, stopped) = (Arc::clone(self), stopped.clone());
                    accepting.spawn(command.accept(listener, forward, stopped));
                }
                Err(error) => tracing::warn!(%error, "a listener of the proxy is lost"),
            }
        }
        while accepting.join_next().await.is_some() {}
    }

    /// Accepts connections until the sender of `stopped` is dropped, and cuts them then. Those of a
    /// forwarded port lead to the loopback of the host.
    async fn accept(
        self: Arc<Self>,
        listener: TcpListener,
        forward: Option<u16>,
        mut stopped: watch::Receiver<()>,
    ) {
        let mut running = JoinSet::new();
        // It is not cancelled by the end of another connection: it may hold a client that waits.
        let mut next = std::pin::pin!(self.next_client(&listener));
        loop {
            let accepted = tokio::select! {
                _ = stopped.changed() => break,
                Some(ended) = running.join_next() => {
                    if let Err(error) = ended {
                        tracing::warn!(%error, "a connection of the proxy has failed");
                    }
                    continue;
                }
                accepted = &mut next => accepted,
            };
            next.set(self.next_client(&listener));
            match accepted {
                Ok((client, permits)) => {
                    self.accounts.begin();
                    let command = Arc::clone(&self);
                    running.spawn(async move {
                        command.connection(client, forward).await;
                        drop(permits);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        running.shutdown().await;
    }

    /// Accepts a client, and waits until there may be one more connection.
    async fn next_client(
        &self,
        listener: &TcpListener,
    ) -> io::Result<(TcpStream, [OwnedSemaphorePermit; 2])> {
        let (client, _) = listener.accept().await?;
        let own = Arc::clone(&self.connections).acquire_owned().await;
        let shared = Arc::clone(&self.session.connections).acquire_owned().await;
        let permits = [own.map_err(io::Error::other)?, shared.map_err(io::Error::other)?];
        Ok((client, permits))
    }

    async fn connection(&self, mut client: TcpStream, forward: Option<u16>) {
        client.set_nodelay(true).ok();
        let request = match forward {
            Some(port) => Ok(ProxyRequest {
                destination: self.session.policy.forward(port),
                protocol: ClientProtocol::Raw,
                first: Vec::new(),
                rest_bytes: None,
            }),
            None => match timeout(self.session.limits.request, read_request(&mut client)).await {
                Ok(request) => request,
                Err(_) => Err(RequestError::Http("the request did not arrive in time")),
            },
        };
        match request {
            Ok(request) => self.handle(client, request).await,
            Err(error) => self.refuse_request(client, error).await,
        }
    }

    async fn refuse_request(&self, client: TcpStream, error: RequestError) {
        let reason = error.to_string();
        let answer = match error {
            RequestError::Ended | RequestError::Io(_) => return,
            RequestError::Socks(code, _) => answer_socks(code).to_vec(),
            RequestError::TooLong => answer_http("431 Request Header Fields Too Large", &reason),
            RequestError::Http(_) => answer_http("400 Bad Request", &reason),
        };
        self.accounts.refused_request(reason);
        close_with(client, &answer, FAREWELL_MAX).await;
    }

    /// Judges a request, connects to its server, and moves bytes until the end.
    async fn handle(&self, mut client: TcpStream, request: ProxyRequest) {
        let ProxyRequest { destination, protocol, first, rest_bytes } = request;
        let mut account = self.accounts.open(&destination);
        let server = match self.admit(&destination).await {
            Ok(addresses) => self.connect(&addresses).await,
            Err(refusal) => Err(refusal),
        };
        let mut server = match server {
            Ok(server) => server,
            Err(refusal) => {
                let answer = refusal_answer(protocol, &destination, &refusal);
                account.refuse(&refusal);
                // Recorded before the client knows, so that its command cannot end earlier.
                drop(account);
                return close_with(client, &answer, FAREWELL_MAX).await;
            }
        };
        account.is_connected = true;
        server.set_nodelay(true).ok();
        let opened: &[u8] = match protocol {
            ClientProtocol::Tunnel => b"HTTP/1.1 200 Connection established\r\n\r\n",
            ClientProtocol::Socks => &answer_socks(socks_reply::DONE),
            ClientProtocol::Plain | ClientProtocol::Raw => b"",
        };
        let meter = self.session.meters.of(&destination.host.to_string());
        let gate = |bytes| self.allow_upload(&meter, &destination, bytes);
        let moved = async {
            client.write_all(opened).await?;
            if !first.is_empty() {
                gate(first.len() as u64).await.map_err(RelayError::Refused)?;
                server.write_all(&first).await?;
                account.moved.sent.fetch_add(first.len() as u64, Ordering::Relaxed);
            }
            drop(first);
            let relay = Relay {
                client: &mut client,
                server: &mut server,
                upload_max: rest_bytes,
                idle_max: self.session.limits.idle,
                moved: &account.moved,
            };
            relay.run(gate).await
        };
        let moved = moved.await;
        if let Err(error) = &moved {
            tracing::debug!(%error, %destination, "a connection was cut");
        }
        if let Err(RelayError::Refused(refusal)) = moved {
            account.refuse(&refusal);
            drop(account);
            let answer = match protocol {
                ClientProtocol::Plain => refusal_answer(protocol, &destination, &refusal),
                // An answer would be taken for the server's.
                ClientProtocol::Tunnel | ClientProtocol::Socks | ClientProtocol::Raw => Vec::new(),
            };
            close_with(client, &answer, FAREWELL_MAX).await;
        }
    }

    /// Judges a destination, asks if the rules do not decide, and looks its name up.
    async fn admit(&self, destination: &Destination) -> Result<Vec<SocketAddr>, EgressRefusal> {
        let EgressSession { policy, resolver, limits, .. } = &*self.session;
        let mut approved = false;
        loop {
            match judge(policy, destination, approved, None) {
                EgressVerdict::Allow(addresses) => return Ok(addresses),
                EgressVerdict::Refuse(refusal) => return Err(refusal),
                EgressVerdict::Ask if approved => return Err(EgressRefusal::NotListed),
                EgressVerdict::Ask => {
                    self.ask(destination).await?;
                    approved = true;
                }
                EgressVerdict::Resolve => break,
            }
        }
        let DestinationHost::Name(name) = &destination.host else {
            return Err(EgressRefusal::NoAddress);
        };
        let found = timeout(limits.lookup, resolver.resolve(name, destination.port)).await;
        let found = found
            .map_err(|_| EgressRefusal::Lookup("no answer in time".to_owned()))?
            .map_err(|error| EgressRefusal::Lookup(error.to_string()))?;
        match judge(policy, destination, approved, Some(&found)) {
            EgressVerdict::Allow(addresses) => Ok(addresses),
            EgressVerdict::Refuse(refusal) => Err(refusal),
            EgressVerdict::Ask | EgressVerdict::Resolve => Err(EgressRefusal::NotListed),
        }
    }

    /// Asks about a destination, once for each command.
    async fn ask(&self, destination: &Destination) -> Result<(), EgressRefusal> {
        let answer = {
            let mut answers = lock(&self.answers);
            if answers.len() >= self.answers_max && !answers.contains_key(destination) {
                return Err(EgressRefusal::TooManyQuestions(self.session.limits.questions));
            }
            Arc::clone(answers.entry(destination.clone()).or_default())
        };
        let question = || {
            let (destination, cause) = (destination.clone(), QuestionCause::NewDomain);
            self.approver.ask(ConnectionQuestion { destination, cause })
        };
        match answer.get_or_init(question).await {
            Approval::Allowed { .. } => Ok(()),
            Approval::Refused(reason) => Err(EgressRefusal::Answered(reason.clone())),
        }
    }

    async fn connect(&self, addresses: &[SocketAddr]) -> Result<TcpStream, EgressRefusal> {
        let mut last = EgressRefusal::NoAddress;
        for address in addresses {
            match timeout(self.session.limits.connect, TcpStream::connect(address)).await {
                Ok(Ok(server)) => return Ok(server),
                Ok(Err(error)) => last = EgressRefusal::Unreachable(error.to_string()),
                Err(_) => last = EgressRefusal::Unreachable("no answer in time".to_owned()),
            }
        }
        Err(last)
    }

    /// Counts bytes that are about to be sent to a domain, and asks about more than the limit.
    async fn allow_upload(
        &self,
        meter: &UploadMeter,
        destination: &Destination,
        bytes: u64,
    ) -> Result<(), EgressRefusal> {
        let limit = self.session.meters.limit();
        if meter.take(bytes) {
            return Ok(());
        }
        let _asking = meter.asking.lock().await;
        if meter.take(bytes) {
            return Ok(());
        }
        if let Some(reason) = lock(&self.upload_refusals).get(&destination.host) {
            return Err(EgressRefusal::Upload(limit, reason.clone()));
        }
        let host = destination.host.clone();
        let (destination, cause) = (destination.clone(), QuestionCause::Upload(meter.sent()));
        match self.approver.ask(ConnectionQuestion { destination, cause }).await {
            Approval::Allowed { lasting } => {
                meter.allow(if lasting { u64::MAX } else { limit.max(bytes) });
                meter.take(bytes);
                Ok(())
            }
            Approval::Refused(reason) => {
                lock(&self.upload_refusals).insert(host, reason.clone());
                Err(EgressRefusal::Upload(limit, reason))
            }
        }
    }
}

/// Answer to a client whose connection is refused, in its protocol.
fn refusal_answer(
    protocol: ClientProtocol,
    destination: &Destination,
    refusal: &EgressRefusal,
) -> Vec<u8> {
    let is_failure = matches!(
        refusal,
        EgressRefusal::NoAddress | EgressRefusal::Lookup(_) | EgressRefusal::Unreachable(_)
    );
    match protocol {
        ClientProtocol::Raw => Vec::new(),
        ClientProtocol::Socks if is_failure => answer_socks(socks_reply::UNREACHABLE).to_vec(),
        ClientProtocol::Socks => answer_socks(socks_reply::REFUSED_BY_RULES).to_vec(),
        ClientProtocol::Tunnel | ClientProtocol::Plain => {
            let status = if is_failure { "502 Bad Gateway" } else { "403 Forbidden" };
            answer_http(status, &format!("{destination}: {refusal}"))
        }
    }
}
