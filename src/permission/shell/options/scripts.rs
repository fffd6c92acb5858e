//! Scripts of `sed`, `awk` and `jq` that only compute and print. Sources: the manuals of sed 4.9,
//! gawk 5.2, mawk 1.3.4, busybox 1.36 and jq 1.7.
//!
//! The checks accept a small part of each language and reject everything else, so that no
//! implementation reads an accepted script as one that runs a program, writes a file or opens
//! another one.

use crate::shell::Names;

/// Language of a script that is an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptLanguage {
    /// `sed`: addresses with commands that print or delete lines, or one substitution.
    Sed,
    /// `awk`: patterns, fields, arithmetic and `print` to the output.
    Awk,
    /// `jq`: a filter that reads no variable of the environment and no module.
    Jq,
}

impl ScriptLanguage {
    /// Checks that a script only computes and prints. Fails with the reason.
    pub(super) fn check(self, script: &str) -> Result<(), String> {
        let (accepted, name) = match self {
            ScriptLanguage::Sed => (is_harmless_sed(script), "sed"),
            ScriptLanguage::Awk => (is_harmless_awk(script), "awk"),
            ScriptLanguage::Jq => (is_harmless_jq(script), "jq"),
        };
        accepted.then_some(()).ok_or_else(|| {
            format!("the script of {name} is not of the simple kind that is known to print only")
        })
    }
}

/// True if implementations agree that the text of a regular expression ends where it ends: in some
/// of them, a delimiter in brackets or behind a backslash belongs to the expression.
fn ends_for_all(expression: &str) -> bool {
    let opened = expression.matches('[').count();
    let after_bracket = |part: &str| part.trim_start_matches('^').starts_with(']');
    opened == 0
        || (opened <= expression.matches(']').count()
            && !expression.contains('\\')
            && !expression.split('[').skip(1).any(after_bracket))
}

/// Commands of sed without an argument that print, delete or move text between its two buffers.
/// `q`, `Q` and `l` may have a number.
const SED_COMMANDS: &str = "=dDgGhHlnNpPqQx{}";

fn is_harmless_sed(script: &str) -> bool {
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', ';']);
        if rest.is_empty() {
            return true;
        }
        let Some(after) = sed_addresses(rest) else { return false };
        let after = after.trim_start_matches([' ', '!']);
        let Some(command) = after.chars().next() else { return false };
        if command == 's' {
            return is_harmless_substitution(&after[1..]);
        }
        if !SED_COMMANDS.contains(command) {
            return false;
        }
        rest = &after[command.len_utf8()..];
        if matches!(command, 'q' | 'Q' | 'l') {
            rest = rest.trim_start_matches(' ').trim_start_matches(|c: char| c.is_ascii_digit());
        }
        rest = rest.trim_start_matches([' ', '\t']);
        // A group may go on without a separator.
        let ends = rest.is_empty() || rest.starts_with([';', '\n', '}']);
        if !ends && !matches!(command, '{' | '}') {
            return false;
        }
    }
}

/// Returns the text after up to two addresses. `None` if an address is not of a known kind.
fn sed_addresses(text: &str) -> Option<&str> {
    let rest = sed_address(text)?;
    match rest.trim_start_matches(' ').strip_prefix(',') {
        Some(second) => {
            let second = second.trim_start_matches(' ');
            let after = sed_address(second.strip_prefix(['+', '~']).unwrap_or(second))?;
            (after.len() < second.len()).then_some(after)
        }
        None => Some(rest),
    }
}

/// Returns the text after an address: a number, `first~step`, `$` or `/expression/`. The text
/// itself if it begins with none.
fn sed_address(text: &str) -> Option<&str> {
    let digits =
        |text: &'_ str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if let Some(rest) = text.strip_prefix('$') {
        return Some(rest);
    }
    if let Some(expression) = text.strip_prefix('/') {
        let mut escaped = false;
        for (at, c) in expression.char_indices() {
            match c {
                '\n' => return None,
                '/' if escaped => return None,
                '/' => {
                    let rest = expression[at + 1..].trim_start_matches(['I', 'M']);
                    return ends_for_all(&expression[..at]).then_some(rest);
                }
                _ => escaped = c == '\\' && !escaped,
            }
        }
        return None;
    }
    let rest = &text[digits(text)..];
    match rest.strip_prefix('~') {
        Some(step) if rest.len() < text.len() => Some(&step[digits(step)..]),
        _ => Some(rest),
    }
}

/// True for the rest of `s/from/to/flags` after the `s`, if it is the end of the script, the
/// delimiter occurs exactly three times, and no flag runs or writes.
fn is_harmless_substitution(text: &str) -> bool {
    let Some(delimiter) = text.chars().next().filter(|c| "/,|#@:%!+".contains(*c)) else {
        return false;
    };
    let parts: Vec<&str> = text[1..].split(delimiter).collect();
    let [from, to, flags] = parts.as_slice() else { return false };
    let splits_alike = |part: &&str| !part.ends_with('\\') && !part.contains('\n');
    [from, to].into_iter().all(splits_alike)
        && flags.trim_end().chars().all(|c| "gpiI".contains(c) || c.is_ascii_digit())
}

/// Functions and keywords of awk that may stand before a parenthesis.
const AWK_CALLS: Names = Names(
    "\
    if while for print printf in else length substr index split sub gsub match toupper tolower \
    sprintf int sqrt exp log sin cos atan2 rand srand strtonum gensub",
);
/// Names of awk that read further input, lead to another function, or hold the environment.
const AWK_NAMES: Names = Names(
    "getline function func system close fflush ARGV ARGC ENVIRON PROCINFO SYMTAB FUNCTAB BEGINFILE \
    ENDFILE load include extension",
);

fn is_harmless_awk(script: &str) -> bool {
    let mut rest = script;
    // Number of open braces. Outside of braces are patterns, in which `>` compares.
    let mut depth = 0_usize;
    let (mut prints, mut compares) = (false, false);
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            'a'..='z' | 'A'..='Z' | '_' => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let (name, after) =
                    rest.split_at(rest.len() - rest.trim_start_matches(is_part).len());
                let calls = after.trim_start().starts_with('(');
                if AWK_NAMES.has(name) || (calls && !AWK_CALLS.has(name)) {
                    return false;
                }
                prints |= matches!(name, "print" | "printf");
                after
            }
            '"' => match awk_string(after) {
                Some(after) => after,
                None => return false,
            },
            // A regular expression or a division: the text up to the next one is harmless as both.
            '/' => match after.split_once('/') {
                Some((expression, after)) => {
                    let is_plain =
                        |c: char| c.is_ascii_alphanumeric() || " _.,:^$*+?=[]-".contains(c);
                    let names = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    if !expression.chars().all(is_plain)
                        || !ends_for_all(expression)
                        || names.into_iter().any(|name| AWK_NAMES.has(name))
                    {
                        return false;
                    }
                    after
                }
                None => after,
            },
            '|' | '&' => match after.strip_prefix(c) {
                Some(after) if !after.starts_with(['|', '&']) => after,
                _ => return false,
            },
            '>' => match after.strip_prefix('=') {
                Some(after) => after,
                None if after.starts_with('>') => return false,
                None => {
                    compares |= depth > 0;
                    after
                }
            },
            '{' => {
                depth += 1;
                after
            }
            '}' => match depth.checked_sub(1) {
                Some(outer) => {
                    depth = outer;
                    after
                }
                None => return false,
            },
            '0'..='9' | ' ' | '\t' | '\n' => after,
            c if "()[],;+-*%=!~?:^$.<".contains(c) => after,
            _ => return false,
        };
    }
    // Behind `print` in an action, `>` names a file.
    !(prints && compares)
}

/// Returns the text after a string of awk, whose opening quote is before `text`. `None` if it does
/// not end, or contains an escape other than `\n`, `\t` and `\\`.
fn awk_string(text: &str) -> Option<&str> {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some(&text[at + 1..]),
            '\n' => return None,
            '\\' => {
                let (_, escape) = chars.next()?;
                if !matches!(escape, 'n' | 't' | '\\') {
                    return None;
                }
            }
            _ => {}
        }
    }
    None
}

/// Names of jq that hold the environment, load modules or show the command line.
const JQ_NAMES: Names =
    Names("env ENV import include modulemeta get_search_list __prog_args __prog_name");

fn is_harmless_jq(filter: &str) -> bool {
    let names = filter.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    !names.into_iter().any(|name| JQ_NAMES.has(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn decides(language: ScriptLanguage, accepted: &[&str], rejected: &[&str]) {
        for script in accepted {
            assert!(language.check(script).is_ok(), "{script}");
        }
        for script in rejected {
            assert!(language.check(script).is_err(), "{script}");
        }
    }

    #[test]
    fn sed_may_print_delete_and_move_lines() {
        let accepted = [
            "",
            "5p",
            "1,20p",
            "$p",
            "10,$p",
            "/a b/p",
            "/a/,/^}/p",
            "/a/I,+3p",
            "1~2p",
            "2,~4p",
            "5q",
            "5q 3",
            "/x/=",
            "/a/!d",
            "1,5p;10q",
            "/a/{p;q}",
            "/a/{n;p}",
            "/[0-9]/p",
            "/\\.rs/p",
            "s/a/b/",
            "s/a/b/g",
            "s/a/b/2p",
            "5,9s|a|b|I",
            "s,a,[&],",
            "1!G;h;$!d",
            "n;d",
            "l 60",
        ];
        decides(ScriptLanguage::Sed, &accepted, &[]);
    }

    #[test]
    fn sed_may_not_write_run_or_read_other_files() {
        let rejected = [
            "w out",
            "/x/w out",
            "5w out",
            "1W out",
            "e",
            "1e touch x",
            "e touch x",
            "r .env",
            "R .env",
            "5p;w out",
            "s/a/b/e",
            "s/a/b/ge",
            "s/a/b/w out",
            "s/a/b/gw out",
            "s/a/b/;w out",
            "s/a/b/\nw out",
            "s/a\\/b/c/e",
            "s/[/]/x/w y/",
            "/[/]/w out/p",
            "/[]/]w out/p",
            "/[\\]/w x/p",
            "/a\\/w out/p",
            "\\xaxe touch y",
            "\\,a,w out",
            "/a\nw out/p",
            "y/a/b/",
            "a\\\ntext",
            "i text",
            "c text",
            "b end",
            ": end",
            "t",
            "F;w x",
            "5p w out",
            "pw out",
            "qw out",
            "{w out",
            "{p}w out",
            "}e",
            "1,w out",
            "v",
            "z",
            "M",
            "s\\a\\b\\e",
            "s a b e",
            "$!{w x\n}",
            "#n\nw out",
            "p # comment",
        ];
        decides(ScriptLanguage::Sed, &[], &rejected);
    }

    #[test]
    fn awk_computes_and_prints_and_nothing_else() {
        let accepted = [
            "{print}",
            "{print $1}",
            "{print $1, $NF}",
            "NR==5",
            "NR>5",
            "NR>=10 && NR<=20",
            "END {print NR}",
            "{ sum += $3 } END { print sum }",
            "/main/",
            "/^[a-z]+$/ {print $2}",
            "!seen[$0]++",
            "{printf \"%s\\n\", $1}",
            "length($0) > 80",
            "$1 == \"a\" || $2 ~ /b/",
            "{ if ($1 < 3) print $2; else print $3 }",
            "{ print $1 / 2 }",
            "{ print $1 / $2 / 3 }",
            "{ print substr($0, 1, 10) }",
            "BEGIN { for (i = 1; i <= 3; i++) print i }",
            "1",
        ];
        let rejected = [
            "BEGIN{system(\"id\")}",
            "BEGIN { system (\"id\") }",
            "{print > \"out\"}",
            "{print >> \"out\"}",
            "{print>$1}",
            "{print | \"sh\"}",
            "{ print |& \"sh\" }",
            "\"date\" | getline",
            "{ getline x < \"f\" }",
            "@load \"x\"",
            "@include \"x\"",
            "{ @f(\"id\") }",
            "{ print ENVIRON[\"A\"] }",
            "BEGIN { ARGV[1] = \"/etc/passwd\"; ARGC = 2 }",
            "function f() { return 1 }",
            "{ print 1 / 2 | \"sh\" / 3 }",
            "{ x = \"id\"; y = 1 / system(x) / 2 }",
            "/[/] | \"sh\" ; /x/",
            "/[]/] | \"sh\" /",
            "/a\\/ | \"sh\" /",
            "{ print 1 / getline / 2 }",
            "{ print \"a\\\" | \\\"sh\" }",
            "{ print \"a }",
            "awk::system(\"id\")",
            "{ f(1) }",
            "{ close(\"x\") }",
            "{ print $1 # comment\n}",
            "{ print `id` }",
            "|||",
            "{ print | cmd }",
            "{ (print) > x } { print }",
            "{ printf(\"x\") > \"y\" }",
            "{ \"id\" | getline }",
            "\\",
        ];
        decides(ScriptLanguage::Awk, &accepted, &rejected);
    }

    #[test]
    fn jq_reads_no_variable_and_no_module() {
        let accepted = [
            ".",
            ".name",
            ".a | length",
            "to_entries | map(.key)",
            ".[] | select(.a == 1)",
            ".environment",
            "\"\\(.a)-\\(.b)\"",
            "input",
            "[inputs]",
            "@base64d",
            ".\"a-b\"",
        ];
        let rejected = [
            "env",
            "$ENV",
            "$ENV.HOME",
            "env.HOME",
            ".a + env.HOME",
            "import \"a\" as a; .",
            "include \"a\"; .",
            "\"\\(env)\"",
            "$__prog_args",
            "modulemeta",
            "get_search_list",
        ];
        decides(ScriptLanguage::Jq, &accepted, &rejected);
    }
}
