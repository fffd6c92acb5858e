//! The second front end of `docs/examples`, run as a program of its own.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::model_server::{ModelServer, runs, says};
use crate::posse::{Machine, RunningPosse};

#[test]
fn line_frontend_asks_and_answers() {
    let program = Path::new(env!("CARGO_BIN_EXE_posse")).with_file_name("examples/line_frontend");
    assert!(program.exists(), "missing example: cargo build --example line_frontend");
    for (answer, result) in [("y", "changed by bash"), ("n", "Denied")] {
        let server = ModelServer::start(vec![
            runs("touch made && echo changed by bash"),
            says("It is done."),
        ]);
        let machine = Machine::with(&server);
        let posse = machine.command::<&str>(&[]);
        let mut command = Command::new(&program);
        command.env_clear().current_dir(machine.path("work"));
        command.envs(posse.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = RunningPosse::start(command);
        let mut input = running.take_stdin();
        // The second line is typed before the question, so it is not the answer.
        input.write_all(b"do it\ny\n").unwrap();
        while !running.next_line().unwrap().starts_with("allow ") {}
        writeln!(input, "{answer}").unwrap();
        drop(input);
        let ended = running.end();
        ended.assert_code(0);
        assert!(ended.stdout.contains("It is done."), "{}", ended.stdout);
        assert!(server.tool_results()[0].contains(result), "{}", server.tool_results()[0]);
        machine.verify();
    }
}
