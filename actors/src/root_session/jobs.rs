//! Background work of calls, such as jobs: messages to the agent that made the call, the stop of
//! the work with that agent or the session, and the report of lost jobs on resume.

use std::sync::Arc;

use futures_util::future::join_all;

use crate::conversation::ContentPart;
use crate::event::{Event, JobEnd, MessageKind, Origin};
use crate::mailbox::tell;
use crate::ports::BackgroundScope;
use crate::replay::{LostJob, QueuedInput, Replayed};
use crate::root_session::main_run::MainRun;
use crate::root_session::{Msg, SessionBase, State};

/// Messages about background work of calls.
#[derive(strum::IntoStaticStr)]
pub(super) enum JobsMsg {
    /// Deliver a text of background work to the agent that made the call.
    Notice(Arc<Origin>, Vec<ContentPart>),
    /// Stop the background work in this scope, without waiting.
    Release(BackgroundScope),
}

impl State {
    pub(super) fn handle_jobs(&mut self, msg: JobsMsg) {
        match msg {
            JobsMsg::Notice(origin, content) => self.notified(&origin, content),
            JobsMsg::Release(what) => self.base.release(&what),
        }
    }

    /// Delivers a text of background work to its agent. Drops it if the session is ending.
    fn notified(&mut self, origin: &Arc<Origin>, content: Vec<ContentPart>) {
        // The end of a job is reported when the session is resumed.
        if !self.end.is_ending() {
            let id = self.base.ports.ids.message();
            self.notify(origin, QueuedInput { id, kind: MessageKind::Notice, content });
        }
    }
}

impl SessionBase {
    pub(super) fn subscribe_notices(&self) {
        let session = self.me.clone();
        self.services.notices.open(move |origin, content| {
            tell(&session, Msg::Jobs(JobsMsg::Notice(origin, content)));
        });
    }

    /// Starts to stop the background work of calls in the scope `what`, without waiting for its
    /// end.
    pub(super) fn release(&self, what: &BackgroundScope) {
        let released = self.release_and_wait(what);
        // Each tool stops its own work; an error cannot be handled here.
        tokio::spawn(released);
    }

    /// Stops background work of calls in the scope `what`. The future resolves when the work has
    /// ended.
    pub(super) fn release_and_wait(
        &self,
        what: &BackgroundScope,
    ) -> impl Future<Output = ()> + Send + 'static {
        let tools: Vec<_> =
            self.ports.tools.iter().map(|tool| tool.stop_background(what)).collect();
        async move {
            join_all(tools).await;
        }
    }

    /// Queues and records a message for the main agent about each job that ended with an earlier
    /// process and was not reported. Records the end of the job if this is missing.
    pub(super) fn report_lost_jobs(&self, replayed: &Replayed, run: &mut MainRun) {
        for job in &replayed.jobs {
            let LostJob { call_id, origin, summary, ended } = job;
            if !ended {
                let event = Event::JobEnded {
                    call_id: call_id.clone(),
                    summary: summary.clone(),
                    end: JobEnd::Lost,
                    detail: "lost: posse broke off, and killed it".to_owned(),
                    exit_code: None,
                    bytes: 0,
                    duration_ms: 0,
                    findings: Vec::new(),
                };
                self.transcript.note(origin.as_ref(), event);
            }
            let queued =
                self.lost(job, &format!(" read_file output:{call_id} has what it printed."));
            // The main agent is informed about all jobs, because it is the one that continues.
            let main = origin.as_ref().filter(|origin| origin.parent_invocation_id.is_none());
            self.transcript.note(main, queued.event());
            run.queue(queued);
        }
    }

    /// Queues a message for the main agent about each job of the original session whose end was not
    /// reported: it does not run in the fork. The message is not recorded here.
    pub(super) fn report_fork_jobs(&self, replayed: &Replayed, run: &mut MainRun) {
        for job in &replayed.jobs {
            run.queue(self.lost(job, ""));
        }
    }

    fn lost(&self, job: &LostJob, output: &str) -> QueuedInput {
        let LostJob { call_id, summary, .. } = job;
        let text = format!(
            "(from posse, not from the user) Background job {call_id} ({summary}) does not run any \
             more: it ended with the process that this conversation goes on from.{output} Start it \
             again if it is needed."
        );
        QueuedInput {
            id: self.ports.ids.message(),
            kind: MessageKind::Notice,
            content: vec![ContentPart::text(text)],
        }
    }
}
