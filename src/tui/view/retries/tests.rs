//! Tests of the rows about failed attempts.

use posse_actors::event::Event;

use crate::testing::TestScreen;

const CAUSE: &str = "server error: bench: answered 500: The server had an error while processing";

fn fails(stage: &mut TestScreen, attempt: u32) {
    let (provider, cause) = ("bench".to_owned(), CAUSE.to_owned());
    let class = "overloaded".to_owned();
    stage.happens(Event::ProviderRetry { provider, attempt, cause, class, wait_ms: 4900 });
    stage.happens(Event::ProviderWaiting {
        provider: "bench".to_owned(),
        wait_ms: 4900,
        patience_left_ms: 540_000,
        class: "overloaded".to_owned(),
        cause: CAUSE.to_owned(),
    });
}

#[test]
fn attempts_change_one_live_row_and_leave_one_line() {
    let mut stage = TestScreen::with_task();
    for attempt in 1..=4 {
        stage.later(2000);
        fails(&mut stage, attempt);
    }
    let screen = stage.screen(100, 24);
    let row = "⏸ bench: server error: answered 500: The serv… · attempt 4 failed · retry in 5 s · gives up in 9 min\n";
    assert!(screen.contains(row), "{screen}");
    assert!(screen.contains("working · 8 s · Esc stops it"), "{screen}");
    assert_eq!(screen.matches("server error").count(), 1, "{screen}");
    assert!(!screen.contains("! bench"), "{screen}");
    stage.later(5000);
    assert!(stage.screen(100, 24).contains("attempt 4 failed · trying again"));
    stage.says("Here it is.\n\n");
    let screen = stage.screen(100, 24);
    let line = "! bench: 4 attempts failed in 11 s (server error: answered 500: The server had an error while\n  \
                processing); then it answered\n";
    assert!(screen.contains(line), "{screen}");
    assert!(!screen.contains('⏸'), "{screen}");
}

#[test]
fn last_retry_and_unknown_count_are_said() {
    let mut stage = TestScreen::with_task();
    stage.happens(Event::ProviderWaiting {
        provider: "bench".to_owned(),
        wait_ms: 3000,
        patience_left_ms: 0,
        class: String::new(),
        cause: String::new(),
    });
    assert!(stage.screen(60, 24).contains("⏸ bench · last retry in 3 s\n"));
}
