//! Reports of the ends of jobs, and jobs that end with their agent.

use posse_actors::conversation::{InvocationId, text_of};

use super::*;

/// Messages of jobs in order.
type JobNotices = Arc<Mutex<Vec<PostCallMessage>>>;

fn call(id: &str, invocation: &str, parent: Option<&str>) -> CallContext {
    let mut call = posse_actors::testing::call_of_main("s", id, "build");
    call.origin = Arc::new(Origin {
        invocation_id: InvocationId::new(invocation),
        parent_invocation_id: parent.map(InvocationId::new),
        agent: "build".to_owned(),
        agent_path: "build".to_owned(),
    });
    call
}

fn start(jobs: &Jobs, call: &CallContext) -> (Arc<Job>, oneshot::Receiver<()>, JobNotices) {
    let heard = JobNotices::default();
    let ears = Arc::clone(&heard);
    let post_call = PostCallSink::new(move |after| ears.lock().unwrap().push(after));
    let (new, told) = new_job("run x");
    (jobs.admit(call, new, post_call).unwrap(), told, heard)
}

fn new_job(summary: &str) -> (NewJob, oneshot::Receiver<()>) {
    let (stop, told) = oneshot::channel();
    let (summary, output) = (summary.to_owned(), PathBuf::new());
    (NewJob { summary, output, stop, began: Instant::now() }, told)
}

fn end(job: &Job, end: JobEnd) {
    job.end(JobExit {
        end,
        detail: "exit 0".to_owned(),
        exit_code: Some(0),
        bytes: 7,
        duration: Duration::from_millis(1500),
        notes: vec!["SBX010 something".to_owned()],
    });
}

/// The messages for the agent.
fn notices(heard: &JobNotices) -> Vec<String> {
    let heard = heard.lock().unwrap();
    let notice = |after: &PostCallMessage| match after {
        PostCallMessage::Notice(content) => Some(text_of(content)),
        PostCallMessage::Fact(_) => None,
    };
    heard.iter().filter_map(notice).collect()
}

fn records(heard: &JobNotices) -> usize {
    let heard = heard.lock().unwrap();
    let ended = |after: &&PostCallMessage| match after {
        PostCallMessage::Fact(event) => matches!(**event, Event::JobEnded { .. }),
        PostCallMessage::Notice(_) => false,
    };
    heard.iter().filter(ended).count()
}

#[test]
fn end_of_a_job_is_reported_once() {
    let jobs = Jobs::new(8);
    // No call waits: a message.
    let (job, _told, heard) = start(&jobs, &call("c1", "i1", None));
    end(&job, JobEnd::Exited);
    assert_eq!(
        notices(&heard),
        [
            "(from posse, not from the user) Background job c1 (run x) has ended: exit 0, after 1.5 s, \
          7 bytes printed; job_output {\"id\": \"c1\"} reads what you have not seen.\n\
          (SBX010 something)"
        ]
    );
    drop(job.wait());
    assert_eq!((notices(&heard).len(), records(&heard)), (1, 1));

    // A call waits and reports the end.
    let (job, _told, heard) = start(&jobs, &call("c2", "i1", None));
    let waiting = job.wait();
    end(&job, JobEnd::Exited);
    job.is_told();
    drop(waiting);
    assert_eq!((notices(&heard).len(), records(&heard)), (0, 1));

    // A waiting call was cancelled before it could report.
    let (job, _told, heard) = start(&jobs, &call("c3", "i1", None));
    let waiting = job.wait();
    end(&job, JobEnd::Exited);
    assert_eq!(notices(&heard).len(), 0);
    drop(waiting);
    assert_eq!(notices(&heard).len(), 1);

    // A call had waited, and was cancelled before the job ended.
    let (job, _told, heard) = start(&jobs, &call("c4", "i1", None));
    drop(job.wait());
    assert_eq!(notices(&heard).len(), 0);
    end(&job, JobEnd::Exited);
    assert_eq!(notices(&heard).len(), 1);

    // The session ends: reported on resume.
    let (job, _told, heard) = start(&jobs, &call("c5", "i1", None));
    end(&job, JobEnd::SessionEnded);
    assert_eq!((notices(&heard).len(), records(&heard)), (0, 1));
}

#[test]
fn ended_job_frees_its_slot() {
    let jobs = Jobs::new(2);
    let (one, _a, _) = start(&jobs, &call("c1", "i1", None));
    let (_two, _b, _) = start(&jobs, &call("c2", "i1", None));
    let third = call("c3", "i1", None);
    let refused = jobs.admit(&third, new_job("").0, PostCallSink::new(drop));
    assert!(refused.unwrap_err().starts_with("JOB001 2 commands run in the background (c1, c2)"));
    end(&one, JobEnd::Exited);
    start(&jobs, &third);
    // Ended jobs are listed up to a limit.
    let jobs = Jobs::new(1);
    for nth in 0..200 {
        let (job, _, _) = start(&jobs, &call(&format!("y{nth}"), "i1", None));
        end(&job, JobEnd::Exited);
    }
    assert_eq!(jobs.of(&third.origin).len(), ENDED_MAX);
}

#[tokio::test]
async fn jobs_belong_to_their_agent() {
    let jobs = Jobs::new(8);
    let (main, child, other) =
        (call("c1", "i1", None), call("c2", "i2", Some("i1")), call("c3", "i3", Some("i1")));
    let (of_main, mut told_main, _) = start(&jobs, &main);
    let (of_child, mut told_child, _) = start(&jobs, &child);
    let (of_other, mut told_other, _) = start(&jobs, &other);
    let ids = |call: &CallContext| -> Vec<String> {
        jobs.of(&call.origin).iter().map(|job| job.id.to_string()).collect()
    };
    assert_eq!(ids(&main), ["c1", "c2", "c3"]);
    // The main agent of the next prompt counts as the same agent.
    assert_eq!(ids(&call("c9", "i9", None)), ["c1", "c2", "c3"]);
    assert_eq!((ids(&child), ids(&other)), (vec!["c2".to_owned()], vec!["c3".to_owned()]));

    let over = jobs.release(&BackgroundScope::Invocation(InvocationId::new("i2")));
    assert_eq!(told_child.try_recv(), Ok(()));
    assert!(told_main.try_recv().is_err() && told_other.try_recv().is_err());
    end(&of_child, JobEnd::Stopped);
    over.await;
    let over = jobs.release(&BackgroundScope::Call(CallId::new("c1")));
    assert_eq!(told_main.try_recv(), Ok(()));
    assert!(told_other.try_recv().is_err());
    end(&of_main, JobEnd::Stopped);
    over.await;
    let over = jobs.release(&BackgroundScope::Session);
    assert_eq!(told_other.try_recv(), Ok(()));
    assert_eq!(*of_other.why.lock().unwrap(), Some(JobEnd::SessionEnded));
    end(&of_other, JobEnd::SessionEnded);
    over.await;
}
