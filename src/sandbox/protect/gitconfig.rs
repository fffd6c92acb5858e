//! Cleaning of git configuration that a command created.
//!
//! A setting stays if it is on a list of harmless ones and its value is harmless. Any other setting
//! is removed: too many settings run a program, and each version of git adds new ones.

/// Maximum size of a configuration file in bytes.
pub(super) const BYTES_MAX: u64 = 256 << 10;

/// Settings that are harmless unless [`is_harmless`] rejects the value: section and key in lower
/// case. `*` matches any key.
const HARMLESS: [(&str, &str); 101] = [
    ("advice", "*"),
    ("am", "threeway"),
    ("apply", "whitespace"),
    ("branch", "description"),
    ("branch", "merge"),
    ("branch", "pushremote"),
    ("branch", "rebase"),
    ("branch", "remote"),
    ("branch", "autosetupmerge"),
    ("branch", "autosetuprebase"),
    ("branch", "sort"),
    ("checkout", "defaultremote"),
    ("clone", "defaultremotename"),
    ("color", "*"),
    ("column", "*"),
    ("commit", "cleanup"),
    ("commit", "gpgsign"),
    ("commit", "verbose"),
    ("core", "abbrev"),
    ("core", "autocrlf"),
    ("core", "bare"),
    ("core", "bigfilethreshold"),
    ("core", "commitgraph"),
    ("core", "compression"),
    ("core", "eol"),
    ("core", "filemode"),
    ("core", "fsync"),
    ("core", "ignorecase"),
    ("core", "logallrefupdates"),
    ("core", "longpaths"),
    ("core", "multipackindex"),
    ("core", "precomposeunicode"),
    ("core", "preloadindex"),
    ("core", "protecthfs"),
    ("core", "protectntfs"),
    ("core", "quotepath"),
    ("core", "repositoryformatversion"),
    ("core", "safecrlf"),
    ("core", "sharedrepository"),
    ("core", "sparsecheckout"),
    ("core", "sparsecheckoutcone"),
    ("core", "symlinks"),
    ("core", "untrackedcache"),
    ("core", "whitespace"),
    ("core", "worktree"),
    ("extensions", "*"),
    ("feature", "*"),
    ("fetch", "all"),
    ("fetch", "fsckobjects"),
    ("fetch", "negotiationalgorithm"),
    ("fetch", "output"),
    ("fetch", "parallel"),
    ("fetch", "prune"),
    ("fetch", "prunetags"),
    ("fetch", "recursesubmodules"),
    ("fetch", "showforcedupdates"),
    ("fetch", "unpacklimit"),
    ("fetch", "writecommitgraph"),
    ("gc", "auto"),
    ("gc", "autodetach"),
    ("index", "*"),
    ("init", "defaultbranch"),
    ("lfs", "access"),
    ("lfs", "repositoryformatversion"),
    ("maintenance", "auto"),
    ("merge", "conflictstyle"),
    ("merge", "ff"),
    ("pack", "threads"),
    ("pull", "ff"),
    ("pull", "rebase"),
    ("push", "autosetupremote"),
    ("push", "default"),
    ("rebase", "autostash"),
    ("remote", "fetch"),
    ("remote", "gh-resolved"),
    ("remote", "mirror"),
    ("remote", "partialclonefilter"),
    ("remote", "promisor"),
    ("remote", "prune"),
    ("remote", "prunetags"),
    ("remote", "push"),
    ("remote", "pushdefault"),
    ("remote", "pushurl"),
    ("remote", "skipdefaultupdate"),
    ("remote", "skipfetchall"),
    ("remote", "tagopt"),
    ("remote", "url"),
    ("rerere", "*"),
    ("status", "*"),
    ("submodule", "active"),
    ("submodule", "branch"),
    ("submodule", "fetchjobs"),
    ("submodule", "fetchrecursesubmodules"),
    ("submodule", "ignore"),
    ("submodule", "path"),
    ("submodule", "recurse"),
    ("submodule", "shallow"),
    ("submodule", "update"),
    ("submodule", "url"),
    ("user", "email"),
    ("user", "name"),
];

/// One setting, with the range of its lines.
#[derive(Debug)]
struct Setting {
    section: String,
    subsection: Option<String>,
    key: String,
    value: String,
    lines: std::ops::Range<usize>,
}

/// Result of cleaning.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cleaned {
    /// Text of the remaining lines.
    pub(super) text: Vec<u8>,
    /// Names of removed settings, such as `core.fsmonitor`.
    pub(super) removed: Vec<String>,
}

/// Removes all settings that are not harmless. `None`: the text cannot be parsed.
///
/// `may_be_tree`: true for a path that `core.worktree` may have.
pub(super) fn clean(bytes: &[u8], may_be_tree: impl Fn(&str) -> bool) -> Option<Cleaned> {
    let text = text(bytes)?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let settings = parse(&lines)?;
    let mut removed = Vec::new();
    let mut keeps = vec![true; lines.len()];
    for setting in settings {
        if !is_harmless(&setting, &may_be_tree) {
            keeps[setting.lines.clone()].fill(false);
            removed.push(setting.name());
        }
    }
    let kept = lines.iter().zip(keeps).filter(|(_, keeps)| *keeps);
    Some(Cleaned { text: kept.map(|(line, _)| *line).collect::<String>().into(), removed })
}

/// Returns the text of a configuration. `None` if it has control characters: git ends a name at a
/// NUL.
fn text(bytes: &[u8]) -> Option<&str> {
    let is_odd = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains(is_odd))
}

/// True if the configuration contains only settings of a sparse checkout, which git stores in a
/// file of the worktree. False if it cannot be parsed.
pub(super) fn is_of_sparse_checkout(bytes: &[u8]) -> bool {
    let Some(text) = text(bytes) else { return false };
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_known = |setting: &Setting| {
        matches!(
            setting.name().as_str(),
            "core.sparsecheckout" | "core.sparsecheckoutcone" | "index.sparse"
        )
    };
    parse(&lines).is_some_and(|settings| settings.iter().all(is_known))
}

/// True if `new` differs from `old` only in settings of single branches and submodules, as after
/// `git submodule update --init` or `git switch --track`. Any of them may be removed. Added and
/// changed ones must be harmless, and a branch's remote must be `.` or configured in `old`. False
/// if none of these differ, if an existing setting of a submodule has another value, or if a text
/// cannot be parsed.
pub(super) fn only_registers(old: &[u8], new: &[u8]) -> bool {
    let (Some(old), Some(new)) = (Registrations::of(old), Registrations::of(new)) else {
        return false;
    };
    // An address in place of a name would send the branch elsewhere.
    let names_a_remote = |setting: &Setting| {
        !matches!(setting.key.as_str(), "remote" | "pushremote")
            || setting.value == "."
            || old.remotes.contains(&setting.value)
    };
    let is_same =
        |one: &Setting, other: &Setting| (one.name(), &one.value) == (other.name(), &other.value);
    let is_known = |setting: &&Setting| !old.settings.iter().any(|known| is_same(known, setting));
    let added: Vec<&Setting> = new.settings.iter().filter(is_known).collect();
    // The source of a submodule that is registered already does not change.
    let is_new = |setting: &Setting| {
        let mut known = old.settings.iter();
        setting.section == "branch" || !known.any(|known| known.name() == setting.name())
    };
    let is_change = !added.is_empty() || new.settings.len() < old.settings.len();
    let mut added = added.into_iter();
    is_change
        && old.other_lines == new.other_lines
        && added.all(|setting| {
            is_harmless(setting, &|_| false) && is_new(setting) && names_a_remote(setting)
        })
}

/// Settings of branches and submodules in a configuration, and the rest of it.
struct Registrations {
    settings: Vec<Setting>,
    /// Names of the configured remotes.
    remotes: Vec<String>,
    /// All other lines that are not blank.
    other_lines: Vec<String>,
}

impl Registrations {
    /// Parses a configuration. `None` if that fails.
    fn of(bytes: &[u8]) -> Option<Registrations> {
        let text = text(bytes)?;
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let is_registration = |section: &str, sub: Option<&String>| {
            matches!(section, "branch" | "submodule") && sub.is_some()
        };
        let (settings, others): (Vec<Setting>, Vec<Setting>) = parse(&lines)?
            .into_iter()
            .partition(|setting| is_registration(&setting.section, setting.subsection.as_ref()));
        let is_header = |line: &str| {
            let head = line.trim_start().strip_prefix('[').and_then(header);
            head.is_some_and(|((section, sub), _)| is_registration(&section, sub.as_ref()))
        };
        let is_in =
            |of: &[Setting], at: usize| of.iter().any(|setting| setting.lines.contains(&at));
        // The line of another value may look like a header.
        let is_other = |(at, line): &(usize, &&str)| {
            is_in(&others, *at)
                || (!line.trim().is_empty() && !is_header(line) && !is_in(&settings, *at))
        };
        let other_lines = lines.iter().enumerate().filter(is_other);
        let other_lines = other_lines.map(|(_, line)| line.trim().to_owned()).collect();
        let mut remotes: Vec<String> = others
            .into_iter()
            .filter(|setting| setting.section == "remote")
            .filter_map(|setting| setting.subsection)
            .collect();
        remotes.dedup();
        Some(Registrations { settings, remotes, other_lines })
    }
}

/// Returns the values of the setting `key` in `section`, both in lower case. `None`: the text cannot
/// be parsed.
pub(super) fn values(bytes: &[u8], section: &str, key: &str) -> Option<Vec<String>> {
    let text = text(bytes)?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut settings = Vec::new();
    parse_into(&lines, Headers::MayBeFollowed, &mut settings)?;
    let found = settings.into_iter();
    let found = found.filter(|setting| setting.section == section && setting.key == key);
    Some(found.map(|setting| setting.value).collect())
}

/// Setting that refers to a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathSetting {
    /// `core.hooksPath` or `init.templateDir`: folder of the hooks, or around it.
    Hooks(String),
    /// `include.path` or `includeIf.….path`: file with further settings.
    Include(String),
    /// `core.worktree`: work tree of the repository.
    WorkTree(String),
}

/// Returns the settings that refer to paths. Of a text that cannot be parsed completely, those in
/// front of the error.
pub(super) fn path_settings(bytes: &[u8]) -> Vec<PathSetting> {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut settings = Vec::new();
    parse_into(&lines, Headers::MayBeFollowed, &mut settings);
    let wanted = settings.into_iter().filter_map(|setting| {
        match (setting.section.as_str(), setting.key.as_str()) {
            // A clone copies its hooks from the folder of templates.
            ("core", "hookspath") | ("init", "templatedir") => {
                Some(PathSetting::Hooks(setting.value))
            }
            ("core", "worktree") => Some(PathSetting::WorkTree(setting.value)),
            ("include" | "includeif", "path") => Some(PathSetting::Include(setting.value)),
            _ => None,
        }
    });
    wanted.collect()
}

impl Setting {
    fn name(&self) -> String {
        match &self.subsection {
            Some(middle) => format!("{}.{middle}.{}", self.section, self.key),
            None => format!("{}.{}", self.section, self.key),
        }
    }
}

fn is_harmless(setting: &Setting, may_be_tree: &dyn Fn(&str) -> bool) -> bool {
    let (section, key) = (setting.section.as_str(), setting.key.as_str());
    let listed =
        HARMLESS.iter().any(|(known, name)| *known == section && (*name == key || *name == "*"));
    // `pushurl`, `url`, `branch.x.remote`: an address may name a program to run.
    let value = setting.value.trim();
    let is_odd = |c: char| c.is_control() && c != '\t';
    let runs = value.starts_with(['!', '-']) || value.contains("::") || value.contains(is_odd);
    let is_tree = key == "worktree" && section == "core";
    // Formats of git may name a folder in an address.
    let has_path = section == "extensions" && value.contains('/');
    let leads_away = (is_tree && !may_be_tree(value)) || has_path;
    let may_have_subsection =
        matches!(section, "branch" | "color" | "lfs" | "remote" | "submodule");
    listed && !runs && !leads_away && (setting.subsection.is_none() || may_have_subsection)
}

/// True if the path `path` is relative, and leads up by at most `depth` levels and then down to a
/// folder with a visible name, as that of a submodule does.
pub(super) fn stays_below(path: &str, depth: usize) -> bool {
    let is_hidden = |part: &str| part.starts_with('.') && !matches!(part, "." | "..");
    let below = path.trim_start_matches("./").trim_start_matches("../");
    let goes_up_again = below.split('/').any(|part| part == "..");
    let is_odd =
        goes_up_again || below.split('/').any(|part| is_hidden(part) || part.contains('~'));
    if path.starts_with(['/', '~', '%', '\\']) || is_odd {
        return false;
    }
    let mut left = depth;
    path.split('/').all(|part| match part {
        "" | "." => true,
        ".." => {
            let is_below = left > 0;
            left = left.saturating_sub(1);
            is_below
        }
        _ => {
            left += 1;
            true
        }
    })
}

/// Position of settings relative to the headers of sections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Headers {
    /// A header is alone on its line, so that settings can be removed by lines.
    Alone,
    /// A setting may follow a header on the same line, as git permits.
    MayBeFollowed,
}

/// Parses a configuration as git does. `None` for unknown syntax, because git may accept it.
fn parse(lines: &[&str]) -> Option<Vec<Setting>> {
    let mut settings = Vec::new();
    parse_into(lines, Headers::Alone, &mut settings).map(|()| settings)
}

/// Parses a configuration into `settings`. `None` at the first unknown syntax; then `settings` are
/// those in front of it.
fn parse_into(lines: &[&str], headers: Headers, settings: &mut Vec<Setting>) -> Option<()> {
    let mut section: Option<(String, Option<String>)> = None;
    let mut at = 0;
    while at < lines.len() {
        let mut rest = lines[at].trim_end_matches('\n');
        if at == 0 {
            rest = rest.trim_start_matches('\u{feff}');
        }
        rest = rest.trim_start_matches(BLANKS);
        while let Some(head) = rest.strip_prefix('[') {
            let (parsed, after) = header(head)?;
            section = Some(parsed);
            if headers == Headers::Alone && !is_blank(after) {
                return None;
            }
            rest = after.trim_start_matches(BLANKS);
        }
        if is_blank(rest) {
            at += 1;
            continue;
        }
        let (section, subsection) = section.clone()?;
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let (key, after) = rest.split_at(end.unwrap_or(rest.len()));
        if !key.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return None;
        }
        let after = after.trim_start_matches([' ', '\t', '\r']);
        let (value, end) = match after.strip_prefix('=') {
            Some(begin) => value(begin, lines, at)?,
            None if is_blank(after) => ("true".to_owned(), at + 1),
            None => return None,
        };
        let key = key.to_ascii_lowercase();
        settings.push(Setting { section, subsection, key, value, lines: at..end });
        at = end;
    }
    Some(())
}

/// Characters that git skips at the beginning of a line.
const BLANKS: [char; 5] = [' ', '\t', '\r', '\u{b}', '\u{c}'];

fn is_blank(rest: &str) -> bool {
    let rest = rest.trim_matches([' ', '\t', '\r', '\n']);
    rest.is_empty() || rest.starts_with(['#', ';'])
}

/// Parses `section]`, `section.sub]` or `section "sub"]`. Returns section and subsection, and the
/// rest of the line. `None` if the header is invalid.
fn header(head: &str) -> Option<((String, Option<String>), &str)> {
    let end = head.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.')?;
    let (name, rest) = head.split_at(end);
    let name = name.to_ascii_lowercase();
    if let Some(rest) = rest.strip_prefix(']') {
        return match name.split_once('.') {
            Some((section, sub)) => Some(((section.into(), Some(sub.into())), rest)),
            None => Some(((name, None), rest)),
        };
    }
    let rest = rest.trim_start_matches([' ', '\t']).strip_prefix('"')?;
    let mut sub = String::new();
    let mut letters = rest.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => {
                let rest = rest[at + 1..].strip_prefix(']')?;
                return (!name.contains('.')).then_some(((name, Some(sub)), rest));
            }
            '\\' => sub.push(letters.next()?.1),
            '\n' => return None,
            other => sub.push(other),
        }
    }
    None
}

/// Parses the value after `=`, including continuation lines. Returns the value and the index of the
/// line after it. `None` if the value is invalid.
fn value(begin: &str, lines: &[&str], first: usize) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut quoted = false;
    let mut line = begin;
    let mut at = first;
    'lines: loop {
        let mut letters = line.trim_end_matches('\n').chars();
        while let Some(letter) = letters.next() {
            match letter {
                '"' => quoted = !quoted,
                '#' | ';' if !quoted => break 'lines,
                '\\' => match letters.next() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('b') => text.push('\u{8}'),
                    Some(same @ ('\\' | '"')) => text.push(same),
                    // The value continues in the next line.
                    None => {
                        at += 1;
                        line = lines.get(at)?;
                        continue 'lines;
                    }
                    Some('\r') if letters.as_str().is_empty() => {
                        at += 1;
                        line = lines.get(at)?;
                        continue 'lines;
                    }
                    Some(_) => return None,
                },
                other => text.push(other),
            }
        }
        break;
    }
    (!quoted).then(|| (text.trim().to_owned(), at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(text: &str) -> (String, Vec<String>) {
        let cleaned = clean(text.as_bytes(), |tree| stays_below(tree, 1)).unwrap();
        (String::from_utf8(cleaned.text).unwrap(), cleaned.removed)
    }

    #[test]
    fn settings_of_a_clone_are_kept() {
        let text = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\
                    \tlogallrefupdates = true\n[remote \"origin\"]\n\turl = https://a.example/b.git\
                    \n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\
                    \tremote = origin\n\tmerge = refs/heads/main\n# a note\n\
                    [remote \"up\"]\n\turl = git@a.example:objects/b.git\n";
        assert_eq!(cleaned(text), (text.to_owned(), Vec::new()));
    }

    #[test]
    fn settings_that_run_programs_are_removed() {
        let hostile = [
            ("[core]\nfsmonitor = ./x\n", "core.fsmonitor"),
            ("[CORE]\nHooksPath = x\n", "core.hookspath"),
            ("[core]\npager = x\n", "core.pager"),
            ("[core]\nsshCommand = x\n", "core.sshcommand"),
            ("[core]\neditor=x\n", "core.editor"),
            ("[core]\ngitproxy=x\n", "core.gitproxy"),
            ("[core]\nworktree=/home\n", "core.worktree"),
            ("[core]\nworktree=../../x\n", "core.worktree"),
            ("[diff \"a\"]\ntextconv = x\n", "diff.a.textconv"),
            ("[diff]\nexternal = x\n", "diff.external"),
            ("[filter \"lfs\"]\nclean = x\n", "filter.lfs.clean"),
            ("[alias]\nst = !x\n", "alias.st"),
            ("[include]\npath = x\n", "include.path"),
            ("[includeIf \"gitdir:/\"]\npath = x\n", "includeif.gitdir:/.path"),
            ("[credential]\nhelper = !x\n", "credential.helper"),
            ("[gpg]\nprogram = x\n", "gpg.program"),
            ("[remote \"o\"]\nuploadpack = x\n", "remote.o.uploadpack"),
            ("[remote \"o\"]\nannex-cost-command = x\n", "remote.o.annex-cost-command"),
            ("[submodule \"a\"]\nupdate = \"!\\b; x\"\n", "submodule.a.update"),
            ("[fetch]\nbundleURI = x\n", "fetch.bundleuri"),
            ("[core]\nworktree = ../.git/hooks\n", "core.worktree"),
            ("[core]\nworktree = a/../.github\n", "core.worktree"),
            ("[extensions]\nrefStorage = reftable:///home/x\n", "extensions.refstorage"),
            ("[core \"x\"]\nabbrev = x\n", "core.x.abbrev"),
            ("[remote \"o\"]\nurl = ext::sh -c x\n", "remote.o.url"),
            ("[submodule \"a\"]\nupdate = !x\n", "submodule.a.update"),
            ("[remote.o]\nvcs = x\n", "remote.o.vcs"),
            ("[merge \"x\"]\ndriver = x\n", "merge.x.driver"),
            ("[sequence]\neditor = x\n", "sequence.editor"),
            ("[url \"a\"]\ninsteadOf = b\n", "url.a.insteadof"),
        ];
        for (text, name) in hostile {
            let (left, removed) = cleaned(text);
            assert_eq!(removed, [name], "{text}");
            assert_eq!(left, text.split_inclusive('\n').next().unwrap());
        }
    }

    #[test]
    fn multi_line_value_is_removed_completely() {
        let text = "[core]\nfsmonitor = a\\\n  bare = b\nbare = false\n";
        assert_eq!(cleaned(text).0, "[core]\nbare = false\n");
        let text = "[user]\nname = \"a # b\\\n c\"\nemail = x ; [core]\n";
        assert_eq!(cleaned(text), (text.to_owned(), Vec::new()));
    }

    #[test]
    fn unparsable_text_is_not_a_configuration() {
        for text in [
            "[core] fsmonitor = x\n",
            "[core\nfsmonitor = x\n",
            "name = x\n",
            "[core]\nfsmonitor \"x\"\n",
            "[a]\nb = \"open\n",
            "[a]\nb = \\x\n",
            "[core \"fsmonitor\0\"]\nabbrev = evil\n",
            "[a \"b\nc\"]\nd = e\n",
        ] {
            assert_eq!(clean(text.as_bytes(), |_| false), None, "{text}");
        }
        assert_eq!(clean(b"[a]\nb = \xff\n", |_| false), None);
    }

    #[test]
    fn registered_branches_and_submodules_are_harmless() {
        let old = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = /srv/a\n";
        let adds = |text: &str| only_registers(old.as_bytes(), format!("{old}{text}").as_bytes());
        assert!(!adds("") && !adds("# a comment\n"), "nothing is registered");
        assert!(adds("[branch \"a\"]\n\tremote = origin\n\tmerge = refs/heads/a\n"));
        assert!(adds("[submodule \"s\"]\n\turl = ../s\n\tactive = true\n"));
        for text in [
            "[submodule \"s\"]\n\tupdate = !evil\n",
            "[submodule \"s\"]\n\turl = ext::sh -c evil\n",
            "[branch \"a\"]\n\tpushRemote = /srv/evil\n",
            "[branch \"a\"]\n\tremote = other\n",
            "[core]\n\tfsmonitor = evil\n",
            "[core]\n\tprotectNTFS = false\n",
            "[remote \"origin\"]\n\turl = /srv/other\n",
            "[submodule]\n\trecurse = true\n",
            "[alias] x = !evil\n",
        ] {
            assert!(!adds(text), "{text}");
        }
        assert!(!only_registers(old.as_bytes(), b"[core]\n\tbare = false\n"));
        assert!(!only_registers(b"[core]\n# words\n", b""));
        let with = |url: &str| format!("[submodule \"s\"]\n\turl = {url}\n");
        assert!(!only_registers(with("../s").as_bytes(), with("/srv/evil").as_bytes()));
        // A line in the middle of a value is no header.
        let long = |middle: &str| format!("[alias]\n\tst = !true; \\\n{middle}\ttrue\n");
        let planted = long("[branch.q]; evil; \\\n") + "[branch \"q\"]\n\tdescription = x\n";
        assert!(!only_registers(long("").as_bytes(), planted.as_bytes()));
    }

    #[test]
    fn finds_settings_that_refer_to_paths() {
        let text = b"[core]\nhooksPath = .husky/_\n[include]\npath = ../extra\n";
        let (hooks, include) = (".husky/_".to_owned(), "../extra".to_owned());
        let expected = [PathSetting::Hooks(hooks), PathSetting::Include(include)];
        assert_eq!(path_settings(text), expected);
        // git accepts a setting behind a header, and bytes that are no text.
        let text = b"[user] name = \xff\n[core] [CORE] hooksPath = \"a b\" # x\n[broken\n";
        assert_eq!(path_settings(text), [PathSetting::Hooks("a b".to_owned())]);
    }
}
