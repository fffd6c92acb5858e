//! Connections of a command by domain: its listeners, its access to the proxy of the session, and
//! the events about them.

use std::sync::Arc;

use posse_actors::event::{Event, SandboxTier};
use posse_actors::ports::{
    ConnectionAnswer, ConnectionAsker, ConnectionRequest, NetworkAccess, PostCallMessage,
    RunContext,
};
use posse_base::failure::printable;
use posse_egress::{
    Approval, ApprovalFuture, CommandListeners, ConnectionApprover, ConnectionOutcome,
    ConnectionQuestion, ConnectionRecord, Destination, Egress, EgressLease, PROXY_PORT,
    QuestionCause, proxy_environment,
};
use posse_sandbox::{ListenerReceiver, ListenerRequest, Sandbox, Spawn, request_listeners};

use crate::ToolEnvironment;

/// Note for the model and the user about a command that could connect to nothing, although no
/// connection was refused.
pub(super) fn proxy_alone() -> String {
    format!(
        "this command reaches the network through the proxy in HTTP_PROXY and HTTPS_PROXY alone \
         (HTTP and SOCKS5 at 127.0.0.1:{PROXY_PORT}); programs that ignore these variables reach \
         nothing, and names are not looked up outside the proxy. git over ssh: use https, or, if \
         the user lists the host with port 22, \
         GIT_SSH_COMMAND='ssh -o ProxyCommand=\"nc -X 5 -x 127.0.0.1:{PROXY_PORT} %h %p\"'"
    )
}

/// Maximum number of domains that a question about a command shows.
const NAMED_MAX: usize = 8;

/// Network of a command by domain.
pub(super) struct CommandNetwork {
    pub(super) listeners: Option<ListenerRequest>,
    lease: Option<EgressLease>,
}

impl CommandNetwork {
    /// Connects the command of `spawn` with the proxy of the session and adds the variables that
    /// make programs use it. Does nothing if the command has no network by domain.
    pub(super) fn open(
        env: &ToolEnvironment,
        sandbox: &Sandbox,
        spawn: &mut Spawn,
        approved: Vec<Destination>,
        context: &RunContext,
    ) -> CommandNetwork {
        let closed = CommandNetwork { listeners: None, lease: None };
        let confinement = &spawn.confinement;
        let is_by_domain = confinement.network == NetworkAccess::Domains
            && confinement.profile != "off"
            && sandbox.tier() == SandboxTier::Full;
        let Some(egress) = env.egress.as_ref().filter(|_| is_by_domain) else { return closed };
        let mut ports = egress.loopback_ports();
        ports.retain(|port| *port != PROXY_PORT);
        ports.insert(0, PROXY_PORT);
        let (listeners, receiver) = match request_listeners(ports) {
            Ok(made) => made,
            Err(error) => {
                tracing::warn!(%error, "a command gets no proxy");
                return closed;
            }
        };
        let variables = proxy_environment().into_iter();
        spawn.environment.extend(variables.map(|(name, value)| (name.into(), value.into())));
        let lease = serve(egress, receiver, approved, context);
        CommandNetwork { listeners: Some(listeners), lease: Some(lease) }
    }

    /// True if the command has network by domain.
    pub(super) fn is_open(&self) -> bool {
        self.lease.is_some()
    }

    /// Cuts the connections of the command, which has ended, and returns a line for each
    /// destination that was refused.
    pub(super) async fn finish(self) -> Vec<String> {
        let Some(lease) = self.lease else { return Vec::new() };
        let lines = lease.finish().await;
        lines.iter().map(|line| format!("network: {}", printable(line))).collect()
    }
}

/// Domains of the web addresses among the words of `programs` about which a person would be asked, the
/// first [`NAMED_MAX`] of them. A question about the command shows them, so that a yes allows both.
pub(super) fn named_domains(env: &ToolEnvironment, programs: &[Vec<String>]) -> Vec<Destination> {
    let Some(egress) = &env.egress else { return Vec::new() };
    let mut named = Vec::new();
    for word in programs.iter().flatten() {
        let found = named_domain(word).filter(|found| egress.asks_about(found));
        named.extend(found.filter(|found| !named.contains(found)));
    }
    named.truncate(NAMED_MAX);
    named
}

/// Destination of a word with a web address, such as `--url=https://example.org/path`.
fn named_domain(word: &str) -> Option<Destination> {
    let (before, address) = word.split_once("://")?;
    let port = match before {
        _ if before.ends_with("https") => 443,
        _ if before.ends_with("http") => 80,
        _ => return None,
    };
    let authority = address.split(['/', '?', '#']).next()?;
    Destination::new(authority, port).or_else(|_| Destination::parse(authority)).ok()
}

fn serve(
    egress: &Egress,
    receiver: ListenerReceiver,
    approved: Vec<Destination>,
    context: &RunContext,
) -> EgressLease {
    let listeners = async move {
        let mut found = receiver.receive().await?;
        let at = found.iter().position(|(port, _)| *port == PROXY_PORT);
        let at = at.ok_or_else(|| std::io::Error::other("the proxy has no listener"))?;
        let (_, proxy) = found.swap_remove(at);
        Ok(CommandListeners { proxy, forwards: found })
    };
    let (call_id, post_call) = (context.call.call_id.clone(), context.post_call.clone());
    let observer = move |record: ConnectionRecord| {
        let ConnectionRecord { host, port, outcome, sent, received, connections } = record;
        let refused = match outcome {
            ConnectionOutcome::Connected => None,
            ConnectionOutcome::Refused(reason) => Some(reason),
        };
        let call_id = call_id.clone();
        let event =
            Event::NetworkConnection { call_id, host, port, refused, sent, received, connections };
        post_call.send(PostCallMessage::Fact(Box::new(event)));
    };
    let person = Arc::new(AsksPerson(context.connections.clone()));
    egress.serve(Box::pin(listeners), approved, person, Arc::new(observer))
}

/// Asks the person of the session about connections.
struct AsksPerson(ConnectionAsker);

impl ConnectionApprover for AsksPerson {
    fn ask(&self, question: ConnectionQuestion) -> ApprovalFuture {
        let target = question.destination.to_string();
        let request = match question.cause {
            QuestionCause::NewDomain => ConnectionRequest {
                operation: "connect".to_owned(),
                summary: format!("connect to {target}"),
                reason:
                    "the domain is not in network.allowedDomains; the connection waits for the \
                         answer. An answer for the session or the project allows this domain and \
                         port to all commands"
                        .to_owned(),
                target,
            },
            QuestionCause::Upload(sent) => ConnectionRequest {
                operation: "upload".to_owned(),
                summary: format!("send more to {target}"),
                reason: format!(
                    "{sent} bytes were sent to it in this session, and more than \
                     network.uploadLimitBytes would be; a yes allows as much again, an answer for \
                     the session any amount"
                ),
                target,
            },
        };
        let answer = self.0.ask(request);
        Box::pin(async move {
            match answer.await {
                ConnectionAnswer::Allowed { lasting } => Approval::Allowed { lasting },
                ConnectionAnswer::Denied { reason } => Approval::Refused(reason),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_addresses_name_their_domains() {
        let table = [
            ("https://example.org/path?a=b", "example.org:443"),
            ("http://Example.org", "example.org:80"),
            ("--url=https://example.org:8443/x", "example.org:8443"),
            ("git+https://example.org/r.git", "example.org:443"),
        ];
        for (word, expected) in table {
            assert_eq!(
                named_domain(word).map(|found| found.to_string()),
                Some(expected.to_owned())
            );
        }
        for word in
            ["example.org", "ssh://example.org", "https://", "https://$HOST/", "https://u:p@a/"]
        {
            assert_eq!(named_domain(word), None, "{word}");
        }
    }
}
