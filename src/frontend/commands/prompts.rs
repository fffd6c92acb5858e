//! `/init` and `/review`: tasks that many users give, as prompts with a fixed text.

use crate::commands::{Availability, COMMAND, Command, CommandGroup};

/// Task of `/init`.
const INIT_TASK: &str = "\
Write a file AGENTS.md in the root of this repository: what a coding agent that has never seen it needs for its first change.

Look first: README and contributing guides, build and package files, CI configuration, the folders, some source and test \
files, and instructions for other agents such as CLAUDE.md, .cursorrules or .github/copilot-instructions.md. Take over what is \
still true in them. If there is an AGENTS.md already, correct and complete it instead of replacing it.

Content:
- the commands to build, run, format, lint and test, and how to run a single test; only commands that you found in the \
repository or have tried
- the structure: what is in which folder, where the program starts, and what has to be changed together
- conventions that the code follows and a reader does not see at once: names, errors, tests, commits, generated files
- what must not be changed or run without asking

Write short, specific sentences, at most about 80 lines. Leave out general advice, and what one look at the files shows. Do not \
invent anything: if you are not sure, leave it out and name it in your answer.";

/// Rules of `/review`, after the sentence that says what is reviewed.
const REVIEW_RULES: &str = "\
Change no file. Read the surrounding code and the callers of what was changed before you judge it, and run tests or small \
checks if they decide a question.

Look for: wrong results, edge cases and errors that are not handled; data loss, security and concurrency; behaviour that \
callers or users rely on and that was changed; missing or wrong tests; documentation that is no longer true. Style counts only \
where the change breaks a convention of this repository.

List the findings, the most serious first: severity (high, medium, low), `file:line`, what goes wrong and when, and the smallest \
correction. Report only what you have checked in the code; say so if something is a suspicion. If there is no finding, say what \
you have checked. End with one sentence: whether the change can be merged as it is.";

pub(super) const INIT: Command = Command {
    name: "init",
    brief: "let the model write AGENTS.md",
    help: "let the model write AGENTS.md: instructions for agents in this repository",
    group: CommandGroup::Work,
    when: Availability::Idle,
    run: |context, _| context.prompt(INIT_TASK.to_owned()),
    ..COMMAND
};

pub(super) const REVIEW: Command = Command {
    name: "review",
    brief: "let the model review changes",
    argument: "[WHAT]",
    help: "let the model review what is not committed, or WHAT: a commit, range, branch or words",
    group: CommandGroup::Work,
    when: Availability::Idle,
    run: |context, argument| context.prompt(review_task(argument)),
    ..COMMAND
};

fn review_task(what: Option<&str>) -> String {
    let subject = match what {
        None => "Review the changes in this working tree that are not committed: `git status`, \
             `git diff HEAD`, and new files that git does not track yet."
            .to_owned(),
        Some(what) => format!(
            "Review: {what}\n\nIf that is a branch, review what the current branch adds to it \
             (`git diff {what}...HEAD`); if it is a commit or a range of commits, review their \
             changes (`git show`, `git diff`); otherwise it says in words what to review."
        ),
    };
    format!("{subject}\n\n{REVIEW_RULES}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn review_names_its_subject_and_changes_nothing() {
        let own = review_task(None);
        assert!(own.contains("git diff HEAD") && own.contains("Change no file"), "{own}");
        let branch = review_task(Some("main"));
        assert!(branch.starts_with("Review: main\n") && branch.contains("git diff main...HEAD"));
    }
}
