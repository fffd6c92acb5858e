//! `job_output` and `job_stop`: reading and stopping background jobs.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use posse_actors::conversation::{CallId, ContentPart};
use posse_actors::event::{JobEnd, Origin};
use posse_actors::ports::{
    Access, CallContext, Prepared, RunContext, SideEffect, Tool, ToolAnnotations, ToolError,
    ToolOutput,
};
use posse_base::failure::printable;
use serde::Deserialize;
use serde_json::json;

use crate::builtin_tool::{BuiltinTool, RunResult};
use crate::jobs::page::{self, OutputPage};
use crate::jobs::{Job, Jobs};
use crate::{ToolEnvironment, bash, digest, prepared, spec, spill};

const OUTPUT: &str = "job_output";
const STOP: &str = "job_stop";

/// Maximum time for which a call of `job_output` waits for the end of the job, in seconds.
const WAIT_SECONDS_MAX: f64 = 600.0;

/// Bytes of the result that are reserved for the text around the job's output.
const FRAME_BYTES: usize = 2048;

/// Creates the tools `job_output` and `job_stop`.
pub(crate) fn tools(env: &Arc<ToolEnvironment>) -> Vec<Arc<dyn Tool>> {
    let of_bash = ToolAnnotations {
        visible_with: Some(bash::NAME.to_owned()),
        ..ToolAnnotations::new(Access::Session)
    };
    let output = spec(
        OUTPUT,
        "Reads what a background command of bash has printed since you last looked, and says \
         whether it still runs. Without id: lists them.",
        of_bash.clone(),
        &json!({
            "id": {"type": "string", "description": "the id that bash gave"},
            "from": {"type": "integer", "description": "byte to read from; default: what is new"},
            "waitSeconds": {
                "type": "number",
                "description": "waits so long for it to end; default 0, at most 600",
            },
        }),
        &[],
    );
    let mut stop = spec(
        STOP,
        "Ends a background command of bash with everything that it has started.",
        of_bash,
        &json!({"id": {"type": "string"}}),
        &["id"],
    );
    stop.side_effect = SideEffect::Process;
    let jobs = || Arc::clone(&env.jobs);
    let mut output = BuiltinTool::new(output, jobs(), prepare_output, run_output);
    output.background_work = background_work;
    vec![Arc::new(output), Arc::new(BuiltinTool::new(stop, jobs(), prepare_stop, run_stop))]
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Look {
    id: Option<String>,
    from: Option<f64>,
    wait_seconds: Option<f64>,
}

fn background_work(jobs: &Jobs, origin: &Origin) -> Vec<String> {
    let line = |job: &Arc<Job>| {
        let (id, summary) = (&job.id, printable(&job.summary));
        format!("background job {id} ({summary}) runs; job_output {{\"id\": \"{id}\"}} reads it")
    };
    jobs.of(origin).iter().filter(|job| job.is_live()).map(line).collect()
}

async fn prepare_output(_: Arc<Jobs>, look: Look, _: CallContext) -> Result<Prepared, ToolError> {
    let summary = match &look.id {
        Some(id) => format!("read what job {} printed", printable(id)),
        None => "list the jobs".to_owned(),
    };
    Ok(about_own(OUTPUT, summary, look))
}

async fn run_output(jobs: Arc<Jobs>, look: Look, context: RunContext) -> RunResult {
    let Look { id, from, wait_seconds } = look;
    let Some(id) = id else { return Ok(list(&jobs, &context.call)) };
    let job = find(&jobs, &context.call, &id)?;
    let wait = wait_seconds.unwrap_or(0.0).clamp(0.0, WAIT_SECONDS_MAX);
    let _waiting = job.wait();
    // After the time limit the output so far is the result.
    tokio::time::timeout(Duration::from_secs_f64(wait), job.over()).await.ok();
    show(&job, from, context.output_bytes_max)
}

#[derive(Debug, Deserialize)]
struct Which {
    id: String,
}

async fn prepare_stop(_: Arc<Jobs>, which: Which, _: CallContext) -> Result<Prepared, ToolError> {
    Ok(about_own(STOP, format!("stop job {}", printable(&which.id)), which))
}

async fn run_stop(jobs: Arc<Jobs>, which: Which, context: RunContext) -> RunResult {
    let job = find(&jobs, &context.call, &which.id)?;
    let _waiting = job.wait();
    job.stop(JobEnd::Stopped);
    job.over().await;
    show(&job, None, context.output_bytes_max)
}

/// Prepares a call of `tool` about jobs of the calling agent. It has no operations, so it needs no
/// permission.
fn about_own<T: Send + 'static>(tool: &str, summary: String, payload: T) -> Prepared {
    let digest = digest::of(&[tool.as_bytes(), summary.as_bytes()]);
    prepared(tool, Vec::new(), (summary.clone(), summary), digest, payload)
}

fn find(jobs: &Jobs, call: &CallContext, id: &str) -> Result<Arc<Job>, ToolError> {
    let all = jobs.of(&call.origin);
    let found = all.iter().find(|job| job.id.as_str() == id).cloned();
    found.ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|job| job.id.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let what = format!(
            "you have no job {id:?}; yours: {known}. What an earlier one printed is still there: \
             read_file output:ID"
        );
        ToolError::new("JOB002", what)
    })
}

fn list(jobs: &Jobs, call: &CallContext) -> ToolOutput {
    let all = jobs.of(&call.origin);
    if all.is_empty() {
        return ToolOutput::text("No command was started in the background.");
    }
    let mut text = String::new();
    for job in &all {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}  {}  {}", job.id, state(job), printable(&job.summary));
    }
    ToolOutput::text(text)
}

/// Formats the state of a job: `running for 3.1 s` or `exit 0 after 3.1 s`.
fn state(job: &Job) -> String {
    let seconds = job.ran_for().as_secs_f64();
    match job.ended() {
        Some(ended) => format!("{} after {seconds:.1} s", ended.detail),
        None => format!("running for {seconds:.1} s"),
    }
}

/// Creates the result of a call about `job`: a page of its output, and its state. Marks this output
/// as read and, if the job has ended, its end as reported. The page begins at byte `from`, or
/// without `from` after the output that was read before. An offset beyond the output is an error.
fn show(job: &Job, from: Option<f64>, bytes_max: usize) -> RunResult {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "that is the point"
    )]
    let from = from.map(|from| from.max(0.0) as u64);
    // Taken before the output is read: later output belongs to the next call.
    let ended = job.ended();
    let read_to = job.read_to.load(Ordering::Acquire);
    let room = bytes_max.saturating_sub(FRAME_BYTES).max(FRAME_BYTES);
    let page = page::read(&job.output, from, read_to, room, ended.is_none());
    let unread = |error: std::io::Error| format!("what it printed cannot be read: {error}");
    let OutputPage { text: printed, from: begin, next, total } =
        page.map_err(|error| ToolError::new("FIL002", unread(error)))?;
    if begin > total {
        let what = format!("job {} has printed {total} bytes", job.id);
        return Err(ToolError::new("ARG004", what));
    }
    job.read_to.fetch_max(next, Ordering::AcqRel);
    let mut text = String::new();
    if from.is_none() && begin > read_to {
        let (left_out, name) = (begin - read_to, spill::name(&job.id));
        let _ =
            writeln!(text, "[… {left_out} bytes left out; {name} or from {read_to} has them …]");
    }
    text.push_str(&printed);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let nothing = if printed.is_empty() { "; nothing new" } else { "" };
    let _ = write!(text, "(job {}: {}{nothing}; {next} of {total} bytes read)", job.id, state(job));
    if let Some(ended) = &ended {
        job.is_told();
        for note in &ended.notes {
            let _ = write!(text, "\n({note})");
        }
    }
    Ok(ToolOutput::text(text).with_metadata(json!({
        "jobId": job.id,
        "running": ended.is_none(),
        "end": ended.as_ref().map(|ended| ended.end),
        "jobExitCode": ended.as_ref().and_then(|ended| ended.exit_code),
        "from": begin,
        "next": next,
        "bytes": total,
    })))
}

/// Creates the result of the `bash` call whose command continues as `job` after its time limit
/// `timeout`: the output so far, at most `bytes_max` bytes.
pub(crate) fn continued(job: &Job, timeout: Duration, bytes_max: usize) -> ToolOutput {
    let id = &job.id;
    let note = format!(
        "(it still runs after {} s and continues in the background as job {id}. You are told when it \
         ends; job_output {{\"id\": \"{id}\", \"waitSeconds\": 60}} waits for it, job_stop ends it)",
        timeout.as_secs()
    );
    let mut output = show(job, None, bytes_max).unwrap_or_else(|error| {
        let text = format!("({})", error.message);
        ToolOutput::text(text).with_metadata(json!({"jobId": id}))
    });
    output.content.push(ContentPart::text(note));
    output.metadata["background"] = true.into();
    output
}

/// Creates the result of the `bash` call that has started job `id`.
pub(crate) fn begun(id: &CallId) -> ToolOutput {
    ToolOutput::text(format!(
        "It runs in the background as job {id}. You are told when it ends; job_output \
         {{\"id\": \"{id}\"}} reads what it prints, job_stop ends it. It ends with this session at \
         the latest."
    ))
    .with_metadata(json!({"jobId": id, "background": true}))
}
