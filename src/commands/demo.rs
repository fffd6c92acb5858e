//! `posse demo`: the whole runtime on a sample repository with a failing test.
//!
//! Only the model is recorded, and permission requests are answered with yes. Tools, permissions,
//! journal and processes are the real ones, in a temporary directory that is removed at the end; no
//! key and no network are needed.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use posse_actors::conversation::Prompt;
use posse_actors::event::PromptOverrides;
use posse_actors::ports::AnswerSource;
use posse_base::terminal;

use crate::cli::DemoArgs;
use crate::commands;
use crate::commands::run::start_log;
use crate::config::{self, Dirs, Environment, Sources};
use crate::failure::{ErrorCode, Exit, Failure};
use crate::front::headless::RunOptions;
use crate::frontend::Task;
use crate::journal::verify_session;
use crate::provider::replay;
use crate::wiring::{self, Setup};

/// Name, contents and mode of the files of the sample repository.
const SAMPLE: [(&str, &str, u32); 3] = [
    ("AGENTS.md", include_str!("demo/sample/AGENTS.md"), 0o644),
    ("median.sh", include_str!("demo/sample/median.sh"), 0o755),
    ("test.sh", include_str!("demo/sample/test.sh"), 0o755),
];

/// Recorded model replies of the demo.
const CASSETTE: &str = include_str!("demo/cassette.jsonl");

/// Prompt of the demo.
pub const PROMPT: &str = "The tests fail. Find out why, fix it, and prove that it is fixed.";

/// Environment variables of the user that the demo uses.
const VARIABLES: [&str; 6] = ["PATH", "LANG", "TERM", "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"];

/// Runs the demo in a temporary folder and returns the exit code of its session.
pub fn run(args: &DemoArgs, environment: &Environment) -> Result<Exit, Vec<Failure>> {
    start_log(args.verbose);
    let place = tempfile::Builder::new().prefix("posse-demo-").tempdir();
    let place = place.map_err(|error| unwritable(&error))?;
    let root = place.path().canonicalize().map_err(|error| unwritable(&error))?;
    let workspace = root.join("median");
    write_sample(&workspace).map_err(|error| unwritable(&error))?;

    let environment = own_environment(environment, &root);
    let dirs = Dirs::from_environment(&environment)?;
    let loaded = config::load(&environment, &dirs, &Sources::default())?;
    let model = replay::from_text("replay", "demo", CASSETTE, &workspace)?;
    let setup = Setup {
        cwd: &workspace,
        add_dirs: &[],
        dirs: &dirs,
        settings: &loaded.settings,
        environment: &environment,
        asking: AnswerSource::Yes,
        used: crate::agents::AgentUse::Task,
        prompt: &PromptOverrides::default(),
        dry_run: false,
        tape: None,
        keep: true,
    };
    let assembled = commands::printing_notices(|notices| wiring::assemble(&setup, model, notices))?;
    let id = assembled.settings.session_id.clone();
    let session_dir =
        crate::journal::StateDir::new(dirs.state.clone()).session_dir(&workspace, &id);
    introduce(&workspace);
    let manner = RunOptions {
        format: args.output_format,
        color: commands::colors(io::stderr().is_terminal(), &environment),
        ..RunOptions::default()
    };
    let exit = commands::run::perform(assembled, Task::Prompt(Prompt::text(PROMPT)), manner)?;
    print_conclusion(&session_dir, id.as_str());
    Ok(exit)
}

/// Environment of the demo: a few harmless variables, and `POSSE_HOME` below `root`, so that
/// settings, keys and state of the user are not used.
fn own_environment(environment: &Environment, root: &Path) -> Environment {
    let kept = VARIABLES
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), environment.get(name)?.to_owned())));
    let home = ("POSSE_HOME".to_owned(), root.join("posse").display().to_string());
    kept.chain([home]).collect()
}

fn write_sample(workspace: &Path) -> io::Result<()> {
    fs::create_dir_all(workspace)?;
    for (name, contents, mode) in SAMPLE {
        let file = workspace.join(name);
        fs::write(&file, contents)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn introduce(workspace: &Path) {
    let text = format!(
        "demo: a recorded model works on a sample repository in {}\n\
         tools, permissions and the journal are real; questions are answered as with --yes\n\
         prompt: {PROMPT}\n\n",
        workspace.display()
    );
    terminal::stderr().write_all(text.as_bytes()).ok();
}

fn print_conclusion(session_dir: &Path, id: &str) {
    let text = match verify_session(session_dir, id) {
        Ok(verified) if verified.is_sound() => {
            format!("\njournal: {} records, hash chain intact\n", verified.records)
        }
        Ok(verified) => format!("\njournal: damaged: {:?}\n", verified.problem),
        Err(error) => format!("\njournal: unreadable: {error}\n"),
    };
    terminal::stderr().write_all(text.as_bytes()).ok();
}

fn unwritable(error: &io::Error) -> Failure {
    Failure::new(ErrorCode::DemoUnwritable, Exit::Failed, "the sample repository cannot be written")
        .because(error.to_string())
        .fix("set TMPDIR to a directory that can be written")
}
