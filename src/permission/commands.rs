//! Commands in the policy: coverage of their parts by grants and rules, and the permission request
//! for parts that are not covered.

use posse_actors::event::{Grant, SandboxTier, Scope};
use posse_actors::ports::{
    AnswerSource, CommandSecrets, Coverage, Operation, PathLink, PermissionQuestion, Situation,
    Verdict,
};
use posse_actors::text::clipped;
use posse_base::failure::printable;
use posse_base::secrets::is_secret;

use crate::rules::{Rule, RuleDecision};
use crate::shell::allow::{Ground, MAY_HOLD_SECRETS, PlainCommand};
use crate::shell::danger::CommandLocation;
use crate::shell::effects::{checks_out, destroys, sends};
use crate::shell::links::is_named_by;
use crate::shell::options::Reading;
use crate::shell::sensitive::may_be_sensitive;
use crate::shell::walk::base;
use crate::shell::word::active;
use crate::shell::wrappers::wrapper_named;
use crate::shell::{Judged, Names, judge, quoted, split};
use crate::{HOME_UNKNOWN, JudgedAction, Relocated, RulePolicy, SandboxMode};

/// Operation of grants for commands ([`Grant::operation`]).
pub(crate) const EXECUTE: &str = "execute";
/// Maximum number of uncovered parts that a permission request names.
const NAMED_MAX: usize = 3;
/// Maximum number of characters that a permission request shows of each such part. A longer part is
/// cut and ends with `…`.
const NAMED_CHARS_MAX: usize = 80;

/// Programs for which no grant is suggested: they run arbitrary programs, reach other machines,
/// destroy data, or change the working directory. A version after the name, as in `python3.12`, is
/// ignored. A rule of the user can allow them. Exceptions for `git` and `cd`: [`may_be_suggested`].
const NEVER_SUGGESTED: Names = Names(
    "\
    ash at awk bash batch bun bwrap busybox cd chgrp chmod chown chroot command cp crontab csh \
    curl dash dd deno doas docker dotenv ed emacs env eval ex exec expect fish flock ftp gawk \
    gdb git ionice kill killall ksh ln lua mv nc ncat nice node nohup npx nsenter osascript \
    parallel perl php pkexec pkill podman pushd python python3 rm rsync ruby scp script sed setsid \
    sftp sh shred source ssh stdbuf su sudo systemctl telnet timeout vim watch wget xargs zsh pwsh nu \
    xonsh tclsh wish Rscript julia mawk tsx ts-node guile racket systemd-run tmux screen direnv nix \
    nix-shell socat",
);
/// Subcommands of git for which no grant is suggested: they discard work, or send it.
const GIT_NEVER_SUGGESTED: Names =
    Names("checkout clean filter-branch push reset restore rm send-email update-ref");
/// Modules of Python for which a grant is suggested: they test or check a project.
const PYTHON_MODULES: Names = Names("json.tool mypy pytest unittest");
/// Programs that run code from the project's files. A global grant is not offered for them.
const REPOSITORY: Names = Names(
    "\
    bazel cargo ctest deno dotnet go gradle jest just make mvn ninja npm pnpm pytest rake tox \
    vitest yarn meson",
);

/// Part of a command that no grant or rule covers.
pub(crate) struct Uncovered<'a> {
    /// The part. `None`: the reason concerns the command as a whole.
    pub(crate) part: Option<&'a PlainCommand>,
    /// Reason why the part is not covered, for a person.
    pub(crate) reason: String,
    /// True if a grant would cover the part.
    pub(crate) grantable: bool,
}

impl RulePolicy {
    /// Parses and judges `command` in the folder `cwd`. `links` are the symbolic links in its
    /// paths, `shown` the files with the name of a secret that it sees. In an isolated workspace, its
    /// paths must lie in the copy.
    pub(crate) fn judged(
        &self,
        command: &str,
        cwd: &str,
        links: &[PathLink],
        shown: &[String],
    ) -> Judged {
        judge(command, self.ground(cwd, links, shown))
    }

    /// Folders and links against which a command in the folder `cwd` is judged.
    pub(crate) fn ground<'a>(
        &'a self,
        cwd: &'a str,
        links: &'a [PathLink],
        shown: &'a [String],
    ) -> Ground<'a> {
        let place = CommandLocation {
            cwd: Some(cwd),
            home: self.settings.home.as_deref().unwrap_or(HOME_UNKNOWN),
        };
        let (roots, closed): (&[String], &[String]) = match &self.settings.relocated {
            None => (&self.settings.roots, &self.settings.own_dirs),
            // The copy is below posse's own folders and contains none of them.
            Some(Relocated { copy, .. }) => (std::slice::from_ref(copy), &[]),
        };
        Ground { place, roots, closed, links, shown }
    }

    /// True if the sandbox is off because the user turned it off, by a flag or in the user's own
    /// configuration.
    fn wants_no_sandbox(&self) -> bool {
        self.settings.sandbox == SandboxMode::Off && self.settings.sandbox_off_given
    }

    /// Succeeds if grants and rules may allow commands in this situation. Otherwise returns the
    /// reason why every command needs approval.
    pub(crate) fn allows_commands(&self, situation: &Situation<'_>) -> Result<(), String> {
        match situation.tier {
            SandboxTier::None if !self.wants_no_sandbox() => {
                Err("commands are not sandboxed here".to_owned())
            }
            SandboxTier::Reduced if self.settings.secrets_in_reach => {
                Err("commands could read the project's secret files, which cannot be hidden here"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Decides about commands by the parts that grants, rules and [`Self::reads_freely`] cover.
    /// A command that only reads, and is not granted, is [`Coverage::Uncovered`], so that the
    /// permission mode allows it, in its profile for reading. `None` if a part is not covered.
    pub(super) fn commands_covered(&self, case: &JudgedAction<'_>) -> Option<(Coverage, Verdict)> {
        let granted = || Verdict::Allow(self.confinement(case.situation));
        if self.uncovered_by(case, false).is_empty() {
            return Some((Coverage::Granted, granted()));
        }
        if !self.reads_freely(case) || !self.uncovered_by(case, true).is_empty() {
            return None;
        }
        Some(if only_reads(case) {
            (Coverage::Uncovered, self.built_in(case))
        } else {
            (Coverage::Granted, granted())
        })
    }

    /// True if commands that only read need no grant: the permission mode allows them, and neither
    /// a rule nor the default decision of an agent asks about commands or denies them.
    fn reads_freely(&self, case: &JudgedAction<'_>) -> bool {
        case.mode_reads && self.has_no_opinion(case)
    }

    /// Returns the parts of the commands that need an answer: neither a grant nor an allow rule of
    /// the configuration covers them, and they do more than read or reading needs a grant here.
    pub(super) fn uncovered<'a>(&self, case: &'a JudgedAction<'_>) -> Vec<Uncovered<'a>> {
        self.uncovered_by(case, self.reads_freely(case))
    }

    /// Returns the parts of the commands that neither a grant nor an allow rule of the
    /// configuration covers, nor, with `reads_freely`, the permission to read. A grant covers a part
    /// even if a rule asks about it, but nothing covers a part for which `barred` or `acts` gives a
    /// reason. If all parts are covered, a command that the two parsers read differently is
    /// uncovered as a whole.
    pub(super) fn uncovered_by<'a>(
        &self,
        case: &'a JudgedAction<'_>,
        reads_freely: bool,
    ) -> Vec<Uncovered<'a>> {
        let alone = only_reads(case);
        let runs_settings = alone || runs_project(case);
        let reads = |part: &PlainCommand| match part.reading {
            Reading::Plain => reads_freely,
            Reading::Configured => reads_freely && runs_settings,
            Reading::Confined => reads_freely && alone,
            Reading::No => false,
        };
        let grants: Vec<Vec<String>> = case
            .situation
            .grants
            .iter()
            .filter(|grant| grant.operation == EXECUTE)
            .filter_map(|grant| split(&grant.target))
            .collect();
        let mut missing = Vec::new();
        for script in &case.scripts {
            if let Some(outside) = &script.outside {
                missing.push(Uncovered { part: None, reason: outside.clone(), grantable: false });
                continue;
            }
            let gap = |part| self.gap(case, part, &grants, reads(part));
            missing.extend(script.parts.iter().filter_map(gap));
            if missing.is_empty() && !script.is_read_alike() {
                let reason = "it can be read in more than one way".to_owned();
                missing.push(Uncovered { part: None, reason, grantable: false });
            }
        }
        missing
    }

    fn gap<'a>(
        &self,
        case: &JudgedAction<'_>,
        part: &'a PlainCommand,
        grants: &[Vec<String>],
        reads: bool,
    ) -> Option<Uncovered<'a>> {
        let granted = grants.iter().any(|grant| part.is_granted(grant));
        let rule = self
            .rules
            .iter()
            .filter(|rule| rule.is_for(case) && rule.is_about(part))
            .max_by_key(|rule| (rule.specificity(), rule.decision == RuleDecision::Ask));
        let asks = rule.filter(|rule| !granted && rule.decision == RuleDecision::Ask);
        let reason =
            part.barred.clone().or_else(|| Some(asks?.why())).or_else(|| part.acts.clone());
        let grantable = reason.is_none();
        let allowed = rule.is_some_and(|rule| rule.decision == RuleDecision::Allow);
        if grantable && (granted || allowed || reads) {
            return None;
        }
        let reason = reason.unwrap_or_else(|| "not covered by a rule or grant".to_owned());
        Some(Uncovered { part: Some(part), reason, grantable })
    }

    /// Creates the permission request for the commands of an action. Its reason names the parts
    /// that are not covered or, if no command may be allowed in this situation, says why. It offers
    /// a grant if commands may be allowed, and one grant would cover all these parts and may be
    /// suggested. `rule` is `None`; the caller sets it.
    pub(super) fn command_question(&self, case: &JudgedAction<'_>) -> PermissionQuestion {
        self.question_about(case, &self.uncovered(case))
    }

    /// The permission request of [`RulePolicy::command_question`] about the parts `missing`.
    pub(super) fn question_about(
        &self,
        case: &JudgedAction<'_>,
        missing: &[Uncovered<'_>],
    ) -> PermissionQuestion {
        let situation = case.situation;
        let allowed = self.allows_commands(situation);
        let suggested = allowed.is_ok().then(|| suggestion(missing)).flatten();
        let (grant, grants_part) =
            suggested.map_or((None, false), |(grant, part)| (Some(grant), part));
        let reason = match &allowed {
            Err(why) => format!("{why}: every command needs approval"),
            Ok(()) => missing_text(missing),
        };
        let mut scopes = vec![Scope::Once];
        let mut grant_text = String::new();
        if let Some(grant) = &grant {
            scopes.extend([Scope::Session, Scope::Project]);
            let words = split(&grant.target).unwrap_or_default();
            let project = words.first().is_some_and(|word| REPOSITORY.has(word));
            if !project {
                scopes.push(Scope::Global);
            }
            if situation.asking == AnswerSource::Human {
                let covers_targets = |uncovered: &Uncovered<'_>| {
                    let part = uncovered.part.filter(|part| part.is_granted(&words));
                    part.is_some_and(|part| part.targets_from == Some(words.len()))
                };
                let any_target = missing.iter().any(covers_targets);
                grant_text = offered(&grant.target, any_target, project, grants_part);
            }
        }
        PermissionQuestion {
            reason,
            scopes,
            grant,
            grants_part,
            grant_text: grant_text.into(),
            yes_covers: *situation.tier != SandboxTier::None || self.wants_no_sandbox(),
            rule: None,
            confinement: self.confinement(situation),
        }
    }

    /// Returns the command prefix of a rule that would have allowed the command and little else.
    /// `None` unless the action is one plain command of literal words that a grant could cover, and
    /// its innermost program is no wrapper. A program in [`NEVER_SUGGESTED`] must have an argument
    /// that is no option, because the program alone would cover everything.
    pub(super) fn command_rule(case: &JudgedAction<'_>) -> Option<String> {
        let [script] = case.scripts.as_slice() else { return None };
        let [part] = script.parts.as_slice() else { return None };
        let plain = script.outside.is_none() && part.literal && part.barred.is_none();
        let runs_more = script.findings.runs.iter().any(|run| {
            // The innermost program counts: an interpreter alone would cover everything.
            run.programs.last().and_then(|at| run.words.get(*at..)).is_none_or(|words| {
                let (program, rest) = words.split_first().map_or(("", words), |(p, r)| (p, r));
                let alone = rest.iter().all(|word| word.starts_with('-'));
                wrapper_named(program).is_some() || (never_suggested(program) && alone)
            })
        });
        (plain && !runs_more && part.acts.is_none()).then(|| quoted(&part.words))
    }
}

/// True if the action consists of commands of which every part only reads.
pub(crate) fn only_reads(case: &JudgedAction<'_>) -> bool {
    !case.scripts.is_empty()
        && case.scripts.iter().all(|script| {
            script.outside.is_none()
                && !script.parts.is_empty()
                && script.parts.iter().all(|part| part.reading != Reading::No)
        })
}

/// True if a part of the commands, which does more than read, runs what the project configures
/// anyway: a build, or another command of git.
fn runs_project(case: &JudgedAction<'_>) -> bool {
    let mut parts = case.scripts.iter().flat_map(|script| &script.parts);
    parts.any(|part| {
        let program = part.words.first().map_or("", String::as_str);
        part.reading == Reading::No && (program == "git" || REPOSITORY.has(program))
    })
}

/// Programs of the option table that only print or compare the content of the files that they name.
const CONTENT_READERS: Names = Names(
    "\
    awk base64 cat cmp column comm cut diff fold grep head hexdump jq nl od paste rev rg sed sort \
    strings tac tail tr uniq wc xxd",
);

/// Returns a file whose content a part of the commands would read although the sandbox hides the
/// file, so that no answer lets the part succeed. `None` if no part is known to.
pub(crate) fn hidden_secret_that_is_read<'a>(case: &'a JudgedAction<'_>) -> Option<&'a str> {
    let hidden = &case.named_secrets()?.hidden;
    let parts = case.scripts.iter().flat_map(|script| &script.parts);
    let reading = parts.filter(|part| {
        let program = part.words.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word));
        let mut reasons = part.barred.iter().chain(&part.acts);
        let is_secret = reasons.any(|why| why.ends_with(MAY_HOLD_SECRETS));
        part.known && is_secret && CONTENT_READERS.has(program)
    });
    reading
        .flat_map(|part| part.words.iter().skip(1))
        .find_map(|word| hidden.iter().map(String::as_str).find(|path| is_named_by(path, word)))
}

/// True if `word`, or a part of it, names one of `paths`.
pub(crate) fn names_one(word: &str, paths: &[String]) -> bool {
    let mut parts = word.split(['=', ':', ',', '@']).chain([word]);
    parts.any(|part| paths.iter().any(|path| is_named_by(path, part)))
}

/// Returns the first word of the script that names a secret, also after `=`, `:`, `,` or `@`, or by
/// a glob of dot files. `None` if no word does, or if every part is understood: the option table
/// has then checked the words that name files. Of `secrets`, the files that the command sees do not
/// count.
pub(crate) fn secret_word<'a>(
    script: &'a Judged,
    secrets: Option<&CommandSecrets>,
) -> Option<&'a str> {
    let understood =
        |part: &PlainCommand| part.known && part.acts.is_none() && part.barred.is_none();
    if script.outside.is_none() && script.parts.iter().all(understood) {
        // The table knows which of their words name files, and has looked at those.
        return None;
    }
    let words =
        script.findings.runs.iter().flat_map(|run| &run.words).chain(&script.findings.files);
    words.map(String::as_str).find(|word| {
        let mut parts = word.split(['=', ':', ',', '@']).chain([*word]);
        let is_shown = |part: &str| {
            secrets.is_some_and(|secrets| {
                names_one(part, &secrets.shown) && !names_one(part, &secrets.hidden)
            })
        };
        let names =
            |part: &str| (is_secret(part) && !is_shown(part)) || matches_hidden_secret(part);
        parts.any(|part| !part.contains(char::is_whitespace) && names(part))
    })
}

/// Returns a word of the commands that leads to a secret file through a symbolic link, and the path
/// of that file. `None` if there is none.
pub(crate) fn linked_secret<'a>(case: &'a JudgedAction<'_>) -> Option<(&'a str, &'a str)> {
    let links = case.action.operations.iter().flat_map(|operation| match operation {
        Operation::Execute { links, .. } => links.as_slice(),
        _ => &[],
    });
    let shown = case.named_secrets().map_or(&[][..], |named| &named.shown);
    let is_closed = |target: &str| is_secret(target) && !shown.iter().any(|path| path == target);
    links.filter(|link| link.target.as_deref().is_some_and(is_closed)).find_map(|link| {
        let runs = case.scripts.iter().flat_map(|script| &script.findings.runs);
        let files = case.scripts.iter().flat_map(|script| &script.findings.files);
        let mut words = runs.flat_map(|run| &run.words).chain(files);
        let word = words.find(|word| is_named_by(&link.path, word))?;
        Some((word.as_str(), link.target.as_deref()?))
    })
}

/// True if `part` is a glob of dot files that may match a secret file, such as `.e*`. A plain `*`
/// does not match dot files.
fn matches_hidden_secret(part: &str) -> bool {
    let is_hidden = |name: &str| name.starts_with('.') && name.contains(['*', '?', '[']);
    if !part.split('/').any(is_hidden) {
        return false;
    }
    let marked: String =
        part.chars().map(|c| if "*?[]".contains(c) { active(c) } else { c }).collect();
    may_be_sensitive(&marked, true)
}

/// Returns the grant for the first part in `missing` that a grant can cover and for which one may be
/// suggested, and true if it leaves another part uncovered. `None` if there is no such part, or if
/// a reason concerns the command as a whole, which grants for its parts do not change.
fn suggestion(missing: &[Uncovered<'_>]) -> Option<(Grant, bool)> {
    let parts: Vec<&PlainCommand> =
        missing.iter().map(|uncovered| uncovered.part).collect::<Option<_>>()?;
    let grantable = missing.iter().zip(&parts).filter(|(uncovered, _)| uncovered.grantable);
    let mut suggested = grantable.filter_map(|(_, part)| part.operation());
    let words = suggested.find(|words| may_be_suggested(words))?;
    let is_covered = |uncovered: &Uncovered<'_>, part: &PlainCommand| {
        uncovered.grantable && part.is_granted(&words)
    };
    let leaves = missing.iter().zip(parts).any(|(uncovered, part)| !is_covered(uncovered, part));
    let target = quoted(&words);
    Some((
        Grant { operation: EXECUTE.to_owned(), target, scope: Scope::Session, agent: None },
        leaves,
    ))
}

/// True if a grant for commands that begin with `words` may be suggested: the program is not in
/// [`NEVER_SUGGESTED`], runs no other one, and neither discards files or work nor changes something on
/// other machines; or it is `cd` with a folder, `git` with a subcommand that is not in
/// [`GIT_NEVER_SUGGESTED`], or Python with a test or check program, and it lists no scripts.
pub(crate) fn may_be_suggested(words: &[String]) -> bool {
    // What git does is in its subcommand, and `cd` goes to one folder.
    let module = words.get(2).filter(|_| words.get(1).is_some_and(|option| option == "-m"));
    let is_check = module.is_some_and(|module| PYTHON_MODULES.has(module));
    let told = |program: &str| match program {
        "cd" => words.len() > 1,
        "git" => words
            .get(1)
            .is_some_and(|name| !name.starts_with('-') && !GIT_NEVER_SUGGESTED.has(name)),
        "python" | "python3" => is_check,
        _ => false,
    };
    // Without the name of a script, it only lists them, but a grant would cover all of them.
    let lists_scripts = matches!(words, [_, run] if run == "run" || run == "run-script");
    let Some((program, rest)) = words.split_first().filter(|_| !lists_scripts) else {
        return false;
    };
    let name = base(program);
    let is_harmful = destroys(name, rest).is_some() || checks_out(name, rest) || sends(name, rest);
    (!never_suggested(name) || told(name)) && wrapper_named(name).is_none() && !is_harmful
}

fn never_suggested(program: &str) -> bool {
    let stem = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    NEVER_SUGGESTED.has(program) || NEVER_SUGGESTED.has(stem)
}

/// Describes the uncovered parts for a permission request: at most [`NAMED_MAX`] different ones,
/// followed by `and more` if there are more.
pub(super) fn missing_text(missing: &[Uncovered<'_>]) -> String {
    // The name of a part, or none, and its reason.
    let mut named: Vec<(String, String)> = Vec::new();
    for uncovered in missing {
        let words = uncovered.part.map(|part| &part.words).filter(|words| !words.is_empty());
        let part = words.map_or_else(String::new, |words| {
            let shown = clipped(&quoted(words), NAMED_CHARS_MAX, "…");
            format!("`{}`", printable(&shown))
        });
        let text = (part, printable(&uncovered.reason));
        if !named.contains(&text) {
            named.push(text);
        }
        if named.len() > NAMED_MAX {
            break;
        }
    }
    let more = if named.len() > NAMED_MAX { "; and more" } else { "" };
    named.truncate(NAMED_MAX);
    // Parts with the same reason, one after the other, share it.
    let of_reason = |group: &[(String, String)]| {
        let parts: Vec<&str> = group.iter().map(|(part, _)| part.as_str()).collect();
        let reason = &group[0].1;
        if parts[0].is_empty() { reason.clone() } else { format!("{}: {reason}", parts.join(", ")) }
    };
    let is_same =
        |a: &(String, String), b: &(String, String)| a.1 == b.1 && a.0.is_empty() == b.0.is_empty();
    let groups: Vec<String> = named.chunk_by(is_same).map(of_reason).collect();
    if groups.is_empty() {
        return "commands need approval".to_owned();
    }
    groups.join("; ") + more
}

/// Describes the grant for `target` for a permission request. `any_target`: true if it covers any
/// target or script that follows; `project`: true if the program runs code of the project. `part`:
/// true if the grant leaves other parts uncovered.
fn offered(target: &str, any_target: bool, project: bool, part: bool) -> String {
    let options = if any_target { "any target and known options" } else { "known options" };
    let runs = if project { ", which runs code of the project's files" } else { "" };
    let rest = if part { "; the rest is asked next" } else { "" };
    format!("a saved answer allows `{}` with {options}{runs}{rest}", printable(target))
}

impl PlainCommand {
    /// Returns the words of a grant for this command: program and subcommand, or all words of a
    /// program that is not in the option table. `None` if such a program has words that are not
    /// literal.
    pub(crate) fn operation(&self) -> Option<Vec<String>> {
        if !self.literal && !self.known {
            return None;
        }
        let length = if self.known { self.named } else { self.words.len() };
        Some(self.words.iter().take(length).cloned().collect())
    }

    /// True if the words of `grant` cover this command: it begins with them, and either the program
    /// is in the option table or no words follow. [`PlainCommand::acts`] tells if the following
    /// words are harmless. A grant with a target of `make` covers no other target; one without covers
    /// all.
    pub(crate) fn is_granted(&self, grant: &[String]) -> bool {
        let Some(rest) = self.words.strip_prefix(grant).filter(|_| !grant.is_empty()) else {
            return false;
        };
        let adds_target = self.targets_from.is_some_and(|program| grant.len() > program)
            && rest.iter().any(|word| !word.starts_with('-'));
        (self.known && !adds_target) || (self.literal && rest.is_empty())
    }
}

impl Rule {
    /// True if the rule asks about, or allows, this part of a command.
    fn is_about(&self, part: &PlainCommand) -> bool {
        let literal = part.known || part.literal;
        match self.decision {
            RuleDecision::Deny => false,
            RuleDecision::Ask => self.covers_command(&part.words),
            RuleDecision::Allow => literal && self.covers_command(&part.words),
        }
    }
}

/// Returns the commands in `scripts` that begin with `prefix`, at the first word or at a program
/// behind wrappers: all words from there on. A folder before the name of a program is ignored.
pub(crate) fn begins<'a>(
    scripts: &'a [Judged],
    prefix: &'a [String],
) -> impl Iterator<Item = &'a [String]> + 'a {
    let runs = scripts.iter().flat_map(|script| &script.findings.runs);
    runs.flat_map(move |run| {
        let places = run.programs.iter().copied().chain([0]);
        places.filter_map(move |at| {
            let words = run.words.get(at..)?;
            let (program, rest) = words.split_first()?;
            let (named, arguments) = prefix.split_first()?;
            let same = program == named || base(program) == named.as_str();
            (same && rest.starts_with(arguments)).then_some(words)
        })
    })
}

/// True if an operation is a command.
pub(crate) fn is_command(operation: &Operation) -> bool {
    matches!(operation, Operation::Execute { .. })
}
