//! Tests of the parser and of the operations that each command calls.

use super::*;

/// Context that records operations as text.
#[derive(Default)]
struct RecordingContext(Vec<String>);

impl RecordingContext {
    fn add(&mut self, operation: impl fmt::Debug) {
        self.0.push(format!("{operation:?}"));
    }
}

impl CommandContext for RecordingContext {
    fn show(&mut self, page: Page) {
        self.add(page);
    }

    fn query(&mut self, query: SessionQuery) {
        self.add(query);
    }

    fn report(&mut self, ReportRequest { report, title, is_list, appendix }: ReportRequest) {
        self.add((report, title, is_list, appendix.is_some()));
    }

    fn choose(&mut self, choice: Choice) {
        self.add(choice);
    }

    fn switch(&mut self, to: SessionSwitch) {
        self.add(to);
    }

    fn prompt(&mut self, text: String) {
        self.add(("prompt", text.lines().next().unwrap_or_default()));
    }

    fn run_skill(&mut self, name: &str, task: &str) {
        self.add(("skill", name, task));
    }

    fn undo(&mut self, checkpoint: Option<u64>) {
        self.add(("undo", checkpoint));
    }

    fn rewind(&mut self, prompt: usize, extent: RewindExtent) {
        self.add(("rewind", prompt, extent));
    }

    fn tree(&mut self, row: usize, label: Option<String>) {
        self.add(("tree", row, label));
    }

    fn withdraw(&mut self, number: &str) {
        self.add(("withdraw", number));
    }

    fn copy_answer(&mut self) {
        self.add("copy");
    }

    fn theme(&mut self, name: Option<&str>) {
        self.add(("theme", name));
    }

    fn stop(&mut self, all: bool) {
        self.add(("stop", all));
    }

    fn exit(&mut self) {
        self.add("exit");
    }

    fn jobs(&self) -> Jobs {
        Jobs::default()
    }
}

/// The operations of a line that is a command.
fn operations(line: &str) -> Vec<String> {
    let ParsedLine::Command(command, argument) = parse(line) else { panic!("{line}") };
    let mut context = RecordingContext::default();
    (command.run)(&mut context, argument.as_deref());
    context.0
}

#[test]
fn distinguishes_commands_from_prompts() {
    let text = |text: &str| ParsedLine::Text(text.to_owned());
    let command = |name: &str, argument: Option<&str>| {
        let command = COMMANDS.iter().find(|command| command.name == name).unwrap();
        ParsedLine::Command(command, argument.map(str::to_owned))
    };
    let shell = |line: &str, is_private| {
        ParsedLine::Shell(ShellCommand { line: line.to_owned(), is_private })
    };
    let table = [
        ("", ParsedLine::Blank),
        ("  \n", ParsedLine::Blank),
        ("fix it", text("fix it")),
        ("/help", command("help", None)),
        ("/?", command("help", None)),
        (" /quit ", command("exit", None)),
        ("/model gpt-9 ", command("model", Some("gpt-9"))),
        ("/skill deploy  to staging ", command("skill", Some("deploy  to staging"))),
        ("/compact the port", command("compact", Some("the port"))),
        ("/permission-mode plan", command("permission-mode", Some("plan"))),
        ("/-x", text("/-x")),
        ("/context --json", command("context", Some("--json"))),
        ("/forget explore", command("forget", Some("explore"))),
        ("/compat", ParsedLine::Unknown("compat".into(), Some("compact"))),
        ("/zzzzzz", ParsedLine::Unknown("zzzzzz".into(), None)),
        ("/usr/bin is broken", text("/usr/bin is broken")),
        ("/etc/hosts", text("/etc/hosts")),
        ("/", text("/")),
        ("/exit\nmore", text("/exit\nmore")),
        ("!ls -l ", shell("ls -l", false)),
        ("! ls\npwd", shell("ls\npwd", false)),
        ("!!ls -l ", shell("ls -l", true)),
        ("!! ls", shell("ls", true)),
        ("! ! grep -q a b", shell("! grep -q a b", false)),
        ("!!", ParsedLine::Text("!!".into())),
        (" !important", text(" !important")),
        ("!", text("!")),
    ];
    for (line, meant) in table {
        assert_eq!(parse(line), meant, "{line:?}");
    }
}

#[test]
fn commands_call_operations_of_the_front_end() {
    let table = [
        ("/help", "Help"),
        ("/model gpt-9", r#"With(Model, "gpt-9")"#),
        ("/provider ?", "Setting(Provider)"),
        ("/agent", "Setting(Agent)"),
        ("/skill deploy  to staging ", r#"("skill", "deploy", "to staging")"#),
        ("/skill deploy", r#"("skill", "deploy", "")"#),
        ("/skill", r#"(Skills, "skills", true, false)"#),
        ("/agents", r#"(Agents, "agents", false, true)"#),
        ("/export a.html", r#"(Export(File("a.html")), "export", false, false)"#),
        ("/share", r#"(Export(Html), "share", false, false)"#),
        ("/share talk", r#"(Export(File("talk.html")), "share", false, false)"#),
        ("/share talk.htm", r#"(Export(File("talk.htm")), "share", false, false)"#),
        ("/rename", "SessionQuery(None)"),
        ("/rename The login", r#"SessionQuery(Some(Request(Rename("The login"))))"#),
        ("/thinking", "Setting(Thinking)"),
        ("/thinking high", r#"With(Thinking, "high")"#),
        ("/fork 2", r#"("rewind", 2, Conversation)"#),
        ("/fork x", "SessionQuery(None)"),
        ("/tree", "Branch"),
        ("/tree 3", r#"("tree", 3, None)"#),
        ("/tree 3 first  try", r#"("tree", 3, Some("first  try"))"#),
        ("/tree 3 -", r#"("tree", 3, Some(""))"#),
        ("/tree x", "SessionQuery(None)"),
        ("/context", "SessionQuery(Some(Context))"),
        ("/cost", "SessionQuery(None)"),
        ("/permission-mode", "SessionQuery(None)"),
        ("/permission-mode yolo", "SessionQuery(None)"),
        ("/permission-mode auto", "SessionQuery(Some(PermissionMode(Auto)))"),
        ("/compact the port", r#"SessionQuery(Some(Compact(Some("the port"))))"#),
        ("/resume", "StoredSession"),
        ("/resume 2026", r#"Resume("2026")"#),
        ("/fork", "Fork"),
        ("/queue", "QueuedMessage"),
        ("/queue drop", "QueuedMessage"),
        ("/queue drop 2", r#"("withdraw", "2")"#),
        ("/queue edit 2 and the tests", "SessionQuery(None)"),
        ("/queue edit 2", "SessionQuery(None)"),
        ("/queue move 2 1", "SessionQuery(None)"),
        ("/queue move 2", "SessionQuery(None)"),
        ("/review main", r#"("prompt", "Review: main")"#),
        ("/theme", r#"("theme", None)"#),
        ("/stop", r#"("stop", false)"#),
        ("/stop all", r#"("stop", true)"#),
        ("/q", r#""exit""#),
    ];
    for (line, operation) in table {
        assert_eq!(operations(line), [operation], "{line}");
    }
}

#[test]
fn every_command_and_alias_calls_one_operation() {
    let mut names: Vec<&str> = Vec::new();
    for command in COMMANDS {
        let by_name = operations(&format!("/{}", command.name));
        assert_eq!(by_name.len(), 1, "{}", command.name);
        for alias in command.aliases {
            assert_eq!(operations(&format!("/{alias}")), by_name, "{alias}");
        }
        names.extend([command.name].iter().chain(command.aliases));
    }
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "each name belongs to one command");
}

#[test]
fn the_word_before_an_id_is_optional() {
    let table = [
        (None, None),
        (Some("stop"), None),
        (Some("stop c1-2"), Some("c1-2")),
        (Some("c1-2"), Some("c1-2")),
        (Some("stopper"), Some("stopper")),
    ];
    for (argument, id) in table {
        assert_eq!(after_word(argument, "stop"), id, "{argument:?}");
    }
}
