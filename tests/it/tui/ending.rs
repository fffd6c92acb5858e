//! Exit of the terminal UI, and the alternate screen.

use std::fs;

use serde_json::json;

use super::Tmux;
use crate::model_server::{ModelServer, says};
use crate::posse::Machine;

/// A machine that uses the alternate screen.
fn alternate_screen_machine(server: &ModelServer) -> Machine {
    Machine::configured(server, &json!({"ui": {"alternateScreen": true}}), &json!({}))
}

fn is_alternate_screen(tmux: &Tmux) -> bool {
    let shown = tmux.run(&["display-message", "-p", "-t", "t", "#{alternate_on}"]);
    String::from_utf8_lossy(&shown.stdout).trim() == "1"
}

/// A panic can be requested in debug builds only.
#[cfg(debug_assertions)]
#[test]
fn panic_restores_the_terminal_and_is_reported() {
    for own_screen in [false, true] {
        let server = ModelServer::start(vec![]);
        let machine =
            if own_screen { alternate_screen_machine(&server) } else { Machine::with(&server) };
        let tmux = Tmux::with(&machine, &[], "TERM=tmux-256color TMUX=1 POSSE_TEST_PANIC=now");
        tmux.says("now");
        tmux.assert_ended(70);
        let stderr = fs::read_to_string(machine.path("tmp/stderr")).unwrap();
        assert!(stderr.contains("a test said so"), "{stderr}");
        let screen = tmux.screen();
        assert!(!screen.contains("❯") && !screen.contains("scripted-1 via"), "{screen}");
        // Keyboard modes are restored: otherwise a letter would be sent as an escape sequence.
        tmux.types("typed afterwards");
        tmux.wait_for("typed afterwards");
    }
}

#[test]
fn alternate_screen_is_scrolled_and_left() {
    let lines: Vec<String> = (1..=80).map(|nth| format!("- point {nth}")).collect();
    let server = ModelServer::start(vec![says(&lines.join("\n"))]);
    let machine = alternate_screen_machine(&server);
    let tmux = Tmux::open(&machine, &[]);
    tmux.says("say much");
    let screen = tmux.wait_for(" · 1 turn");
    assert!(
        is_alternate_screen(&tmux) && screen.contains("point 80") && !screen.contains("point 40\n")
    );
    for _ in 0..5 {
        tmux.presses("PPage");
    }
    let screen = tmux.wait_for("50 rows below: PgDn scrolls down");
    assert!(screen.contains("point 20") && !screen.contains("point 80"), "{screen}");
    for _ in 0..5 {
        tmux.presses("NPage");
    }
    tmux.wait_for("point 80");
    tmux.run(&["resize-window", "-t", "t", "-x", "60", "-y", "20"]);
    let rule = "─".repeat(60);
    tmux.wait_until("a narrower prompt", |screen| screen.contains(&rule));
    tmux.presses("C-d");
    tmux.assert_ended(0);
    // The content of the alternate screen is gone.
    let all = tmux.all();
    assert!(!all.contains('❯') && !all.contains("point 80"), "{all}");
    machine.verify();
}
