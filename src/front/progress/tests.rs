//! Output for each event, on a terminal and elsewhere.

use std::fmt::Write as _;

use serde_json::json;

use super::*;

fn completed(text: &str, metadata: Value) -> Event {
    Event::ToolCompleted {
        call_id: CallId::new("c1"),
        name: "tool".to_owned(),
        content: vec![ContentPart::text(text)],
        metadata,
        duration_ms: 12,
    }
}

#[test]
fn command_shows_its_last_lines_without_control_sequences() {
    let text = "1\n2\n3\n4\n5\n\u{1b}[2Jsix\n(exit 1, 12 ms)\n(a note)";
    let shown = ProgressPrinter::new(false, false).show(&completed(text, json!({"exitCode": 1})));
    insta::assert_snapshot!(shown, @r"
      exit 1, 12 ms
      │ … 1 lines above
      │ 2
      │ 3
      │ 4
      │ 5
      │ \u{1b}[2Jsix
    ");
}

/// A name from a model, a server, an older journal or another front end.
#[test]
fn names_cannot_control_the_terminal() {
    let hostile = "x\u{1b}]52;c;AAAA\u{7}\u{9b}2J\u{202e}\u{1b}[201~".to_owned();
    let failed = Event::ToolFailed {
        call_id: CallId::new("c1"),
        name: hostile.clone(),
        content: vec![ContentPart::text(&hostile)],
        class: ToolFailureClass::UnknownTool,
        metadata: Value::Null,
        duration_ms: 0,
    };
    let unknown = Event::ToolOutcomeUnknown {
        call_id: CallId::new("c1"),
        name: hostile.clone(),
        content: vec![ContentPart::text(&hostile)],
        begun: None,
    };
    let retried = Event::ProviderSilent { provider: hostile.clone(), silent_ms: 1 };
    let crashed = Event::ActorRestarted { actor: hostile, restarts: 1 };
    for event in [failed, unknown, retried, crashed] {
        let shown = ProgressPrinter::new(false, false).show(&event);
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
        assert!(!shown.contains('\u{202e}') && shown.contains("52;c;AAAA"), "{shown:?}");
    }
}

#[test]
fn killed_command_names_its_signal() {
    let event =
        completed("(ended by SIGKILL, 3 ms)", json!({"exitCode": null, "signal": "SIGKILL"}));
    assert_eq!(ProgressPrinter::new(false, false).show(&event), "  ended by SIGKILL, 12 ms\n");
}

#[test]
fn change_shows_the_start_of_its_diff() {
    let added: Vec<String> = (1..=20).map(|nth| format!("+line {nth}")).collect();
    let diff = format!("--- a/x\n+++ b/x\n@@ -1 +1,20 @@\n-old\n{}\n", added.join("\n"));
    let shown =
        ProgressPrinter::new(false, true).show(&completed("updated x", json!({"diff": diff})));
    assert_eq!(shown.lines().count(), DIFF_LINES_MAX + 1);
    assert!(shown.starts_with("\u{1b}[2m  @@ -1 +1,20 @@\u{1b}[0m\n\u{1b}[31m  -old"), "{shown}");
    assert!(shown.ends_with("… 10 more lines\u{1b}[0m\n"), "{shown}");
}

#[test]
fn diff_of_a_permission_request_is_not_repeated() {
    let id = QuestionId::new("q1");
    let asked = Event::PermissionRequested {
        user_request: None,
        trial: None,
        grant: None,
        grants_part: false,
        grant_text: String::new(),
        hunks: Vec::new(),
        target: posse_actors::event::PermissionTarget::default(),
        request_id: id.clone(),
        call_id: CallId::new("c1"),
        tool: "write_file".to_owned(),
        summary: String::new(),
        detail: String::new(),
        reason: String::new(),
        scopes: Vec::new(),
        digest: String::new(),
        cwd: String::new(),
        binding: String::new(),
    };
    let granted = |by: &str| Event::PermissionGranted {
        reply: None,
        target: posse_actors::event::PermissionTarget::default(),
        request_id: id.clone(),
        by: by.to_owned().into(),
        scope: posse_actors::event::Scope::Once,
        grants_part: false,
        keeps_trial: false,
        hunks: Vec::new(),
        grant: None,
        binding: String::new(),
        answered_by: None,
    };
    let done = completed("updated x", json!({"diff": "@@ -1 +1 @@\n-a\n+b\n"}));
    for (by, lines) in [("user", 0), ("--yes", 3)] {
        let mut progress = ProgressPrinter::new(false, false);
        assert_eq!(progress.show(&asked) + &progress.show(&granted(by)), "");
        assert_eq!(progress.show(&done).lines().count(), lines, "{by}");
    }
}

#[test]
fn dry_run_describes_the_effect() {
    let started = |summary: &str, effect| Event::ToolStarted {
        call_id: CallId::new("c1"),
        name: "tool".to_owned(),
        summary: summary.to_owned(),
        digest: String::new(),
        effect,
        coerced: Vec::new(),
    };
    let mut progress = ProgressPrinter::new(false, false).of_dry_run(true);
    assert_eq!(progress.show(&started("run make", true)), "• would run make\n");
    assert_eq!(progress.show(&started("read a.txt", false)), "• read a.txt\n");
    let mut progress = ProgressPrinter::new(false, false);
    assert_eq!(progress.show(&started("run make", true)), "• run make\n");
}

fn waiting(wait_ms: u64) -> Event {
    waiting_with(wait_ms, 540_000)
}

fn waiting_with(wait_ms: u64, patience_left_ms: u64) -> Event {
    Event::ProviderWaiting {
        provider: "local".to_owned(),
        wait_ms,
        patience_left_ms,
        class: "overloaded".to_owned(),
        cause: "busy".to_owned(),
    }
}

#[test]
fn countdown_is_redrawn_in_place_and_removed() {
    let mut progress = ProgressPrinter::new(true, true);
    let delta = |text: &str| Event::TextDelta { text: text.to_owned() };
    let shown = [
        progress.show(&delta("half")),
        progress.show(&waiting(12_345)),
        progress.show(&waiting(11_345)),
        progress.show(&delta("whole")),
        progress.show(&waiting(1000)),
        progress.finish_line().to_owned(),
    ];
    insta::assert_debug_snapshot!(shown, @r#"
    [
        "half",
        "\n\u{1b}[2m… local: next try in 12 s (then it waits 9 min at most)\u{1b}[0m",
        "\r\u{1b}[K\u{1b}[2m… local: next try in 11 s (then it waits 9 min at most)\u{1b}[0m",
        "\r\u{1b}[Kwhole",
        "\n\u{1b}[2m… local: next try in 1 s (then it waits 9 min at most)\u{1b}[0m",
        "\r\u{1b}[K",
    ]
    "#);
    assert_eq!(ProgressPrinter::new(true, false).show(&waiting(1000)), "", "where nothing draws");
    let last = ProgressPrinter::new(true, true).show(&waiting_with(600, 0));
    assert!(last.contains("next try in 1 s (the last one)"), "{last}");
}

#[test]
fn failover_names_both_models() {
    let switch = |class: &str, skipped: &[&str]| Event::ProviderFailover {
        from: "one".to_owned(),
        from_model: "big".to_owned(),
        to: "two".to_owned(),
        to_model: "small".to_owned(),
        class: class.to_owned(),
        cause: "the provider is overloaded: busy".to_owned(),
        skipped: skipped.iter().map(|&why| why.to_owned()).collect(),
    };
    let mut progress = ProgressPrinter::new(false, false);
    let shown = progress.show(&switch("overloaded", &["three: it sees no images"]))
        + &progress.show(&switch("recovered", &[]));
    insta::assert_snapshot!(shown, @r"
    ! failover to small via two: big via one is unavailable (the provider is overloaded: busy)
      skipped three: it sees no images
    ! small via two has recovered and replaces big via one
    ");
}

#[test]
fn read_only_call_is_one_line() {
    assert_eq!(
        ProgressPrinter::new(true, true).show(&completed("much text", json!({"lines": 3}))),
        ""
    );
}

/// Rows of a terminal of this size, including scrolled ones.
fn on_screen(written: &str, columns: usize, rows: usize) -> String {
    let mut screen: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0_usize, 0);
    let mut chars = written.chars();
    while let Some(c) = chars.next() {
        match c {
            '\n' => (row, column) = (row + 1, 0),
            '\r' => column = 0,
            '\u{1b}' => {
                let sequence: String = chars.by_ref().skip(1).take_while_inclusive();
                let (count, what) = sequence.split_at(sequence.len() - 1);
                match what {
                    "A" => {
                        let top = screen.len().saturating_sub(rows);
                        row = row.saturating_sub(count.parse().unwrap()).max(top);
                    }
                    "J" => {
                        screen.truncate(row + 1);
                        screen[row].truncate(column);
                    }
                    "K" => screen[row].truncate(column),
                    "m" => (),
                    other => panic!("{other}"),
                }
            }
            c => {
                if column == columns {
                    (row, column) = (row + 1, 0);
                }
                screen.resize_with(screen.len().max(row + 1), Vec::new);
                let line = &mut screen[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
        screen.resize_with(screen.len().max(row + 1), Vec::new);
    }
    let mut text = String::new();
    for line in screen {
        writeln!(text, "{}", line.into_iter().collect::<String>().trim_end()).unwrap();
    }
    text
}

/// An iterator up to the first letter, inclusive.
trait TakeWhileInclusive: Iterator<Item = char> + Sized {
    fn take_while_inclusive(self) -> String {
        let mut taken = String::new();
        for c in self {
            taken.push(c);
            if c.is_ascii_alphabetic() {
                break;
            }
        }
        taken
    }
}

impl<I: Iterator<Item = char>> TakeWhileInclusive for I {}

fn on_terminal(screen: ScreenSize) -> ProgressPrinter {
    ProgressPrinter { screen: Some(screen), ..ProgressPrinter::new(true, true) }
}

fn delta(text: &str) -> Event {
    Event::TextDelta { text: text.to_owned() }
}

fn partial(text: &str, cause: &str) -> Event {
    Event::ModelPartial {
        turn: 1,
        text: text.to_owned(),
        cause: cause.to_owned(),
        in_history: cause == "interrupted",
    }
}

fn retry() -> Event {
    Event::ProviderRetry {
        provider: "local".to_owned(),
        attempt: 1,
        cause: "cut".to_owned(),
        class: "cut".to_owned(),
        wait_ms: 1200,
    }
}

fn played(mut progress: ProgressPrinter, events: &[Event]) -> String {
    events.iter().map(|event| progress.show(event)).collect()
}

#[test]
fn retried_reply_is_not_shown_twice() {
    let text = "I will look at both of the files, and then at a third one.\nFirst";
    let events = [
        Event::Warning { message: "above".to_owned() },
        delta(&text[..30]),
        waiting(2000),
        delta(&text[30..]),
        partial(text, "cut"),
        retry(),
        waiting(1000),
        delta(text),
        delta(" the one.\n"),
    ];
    let progress = on_terminal(|| Some((20, 24)));
    let shown = on_screen(&played(progress, &events), 20, 24);
    insta::assert_snapshot!(shown, @r"
    ! above
    ! local: attempt 1 f
    ailed (cut); again i
    n 1.2 s
    I will look at both
    of the files, and th
    en at a third one.
    First the one.
    ");
}

#[test]
fn scrolled_partial_reply_is_marked_as_discarded() {
    let lines = "line\n".repeat(30);
    let events = [delta(&lines), partial(&lines, "cut"), retry(), delta("whole\n")];
    let shown = played(on_terminal(|| Some((80, 24))), &events);
    assert!(!shown.contains("\u{1b}[J"), "{shown:?}");
    let shown = on_screen(&shown, 80, 24).replace(&lines, "…\n");
    insta::assert_snapshot!(shown, @r"
    …
    ! the reply was cut off (cut); the model does not keep this part
    ! what stands above of the reply does not count
    ! local: attempt 1 failed (cut); again in 1.2 s
    whole
    ");
}

#[test]
fn partial_reply_is_marked_without_a_terminal() {
    let events = [delta("half"), partial("half", "cut"), retry(), delta("half and half\n")];
    let shown = played(ProgressPrinter::new(true, false), &events);
    insta::assert_snapshot!(shown, @r"
    half
    ! the reply was cut off (cut); the model does not keep this part
    ! what stands above of the reply does not count
    ! local: attempt 1 failed (cut); again in 1.2 s
    half and half
    ");
}

#[test]
fn partial_reply_without_retry_stays() {
    let events = [delta("half"), partial("half", "interrupted"), delta("next\n")];
    let shown = on_screen(&played(on_terminal(|| Some((80, 24))), &events), 80, 24);
    assert!(shown.starts_with("half\n! the reply was stopped; the model keeps"), "{shown}");
}

#[test]
fn output_of_others_is_not_erased() {
    let mut progress = on_terminal(|| Some((80, 24)));
    let mut shown = progress.show(&delta("half"));
    shown += progress.finish_line();
    shown += "(said at the next step)\n";
    shown += &progress.show(&delta("more"));
    shown += &progress.show(&partial("halfmore", "cut"));
    shown += &progress.show(&retry());
    let shown = on_screen(&shown, 80, 24);
    insta::assert_snapshot!(shown, @r"
    half
    (said at the next step)
    more
    ! the reply was cut off (cut); the model does not keep this part
    ! what stands above of the reply does not count
    ! local: attempt 1 failed (cut); again in 1.2 s
    ");
}

#[test]
fn task_list_is_printed_escaped() {
    use posse_actors::event::{TodoItem, TodoStatus};
    let item = |content: &str, status| TodoItem { content: content.to_owned(), status };
    let todos = vec![
        item("read\u{1b}[2J it", TodoStatus::Completed),
        item("change it", TodoStatus::InProgress),
        item("test it", TodoStatus::Pending),
        item("ask", TodoStatus::Cancelled),
    ];
    let shown = ProgressPrinter::new(false, false).show(&Event::TodosUpdated { todos });
    insta::assert_snapshot!(shown, @r"
      [x] read\u{1b}[2J it
      [>] change it
      [ ] test it
      [-] ask
    ");
}

#[test]
fn refused_plan_has_the_words_of_the_user() {
    let refused = Event::PermissionDenied {
        request_id: QuestionId::new("q1"),
        by: DecisionSource::User,
        reason: "the user said no: use cargo\u{1b}[2J".to_owned(),
        target: posse_actors::event::PermissionTarget::default(),
        is_user_request: true,
        rule: None,
        answered_by: None,
    };
    let shown = ProgressPrinter::new(false, false).show(&refused);
    assert_eq!(shown, "! refused: the user said no: use cargo\\u{1b}[2J\n");
}

#[test]
fn result_of_a_restore_names_files_and_the_next_step() {
    let report = json!(["restored 1 file of checkpoint 1: modified a", "not restored: b: why"]);
    let shown = ProgressPrinter::new(false, false).show(&completed("x", json!({"report": report})));
    assert_eq!(shown, "  restored 1 file of checkpoint 1: modified a\n  not restored: b: why\n");
}
