//! Programs of a shell text: the reader compared with the rules of bash.

use super::*;

/// The programs of each text, and that nothing in it is doubted.
#[test]
fn finds_programs_as_bash_does() {
    let table: [(&str, &[&str]); 23] = [
        // After `;;`, `esac` always ends the construct.
        ("case a in b) p1;; esac|p2 esac", &["p1", "p2"]),
        ("case a in b) p1;; esac||p2 esac", &["p1", "p2"]),
        ("case a in b) p1;; esac|&p2 esac", &["p1", "p2"]),
        ("case a in b) p1;; esac>out; p2 esac", &["p1", "p2"]),
        ("case a in b) p1;; esac&p2 esac", &["p1", "p2"]),
        ("case a in esac|p1 esac", &["p1"]),
        ("case a in b) p1;& esac|p2 esac", &["p1", "p2"]),
        ("case a in b) p1;;\n# c\nesac|p2 esac", &["p1", "p2"]),
        ("case a in b|c) p1;; (d) p2;; esac|p3 esac", &["p1", "p2", "p3"]),
        ("case a in <(p1)) p2;; esac", &["p1", "p2"]),
        ("[[ a ]]>out; p1 ]]", &["p1"]),
        ("[[ -n <(p1) ]]|p2 ]]", &["p1", "p2"]),
        // A line continuation quotes nothing.
        ("i\\\nf p1; then p2; f\\\ni", &["p1", "p2"]),
        ("whil\\\ne p1; do p2; don\\\ne", &["p1", "p2"]),
        ("case a in b) p1;; es\\\nac; p2 esac", &["p1", "p2"]),
        ("[\\\n[ a ]\\\n]; p1 ]]", &["p1"]),
        ("x\\\n=1 p1", &["p1"]),
        ("2\\\n>out p1", &["p1"]),
        ("p0 <<E\\\nOF\n$(p1)\nEOF\np2", &["p0", "p1", "p2"]),
        ("p\\\n1 a\\\nb", &["p1"]),
        // Behind `in`, no word is reserved.
        ("for x in do p0; do p1; done; p2", &["p1", "p2"]),
        ("for x do p1; done", &["p1"]),
        ("for x in do case a in\ndo p1\ndone\np2 esac done", &["p1", "p2"]),
    ];
    let policy = policy(&[]);
    for (text, programs) in table {
        let checked = policy.check(text, ROOT, &[]);
        let mut listed = checked.programs.clone();
        listed.sort();
        assert_eq!(listed, programs, "{text}");
        assert!(!checked.unsure, "{text}");
    }
}

/// A doubtful text is listed all the same.
#[test]
fn lists_commands_of_multi_line_conditions() {
    for text in ["[[ a && # \"\nb ]]; p1 #\"\n]]", "p0 <<'E'; [[ a &&\nE\nb ]]\np1\nE\n"] {
        let programs = policy(&[]).check(text, ROOT, &[]).programs;
        assert!(programs.iter().any(|program| program == "p1"), "{text}: {programs:?}");
    }
}

/// Texts that versions of bash read differently or reject.
#[test]
fn ambiguous_syntax_is_not_allowed_silently() {
    for text in [
        "case a in (esac) p1;; esac",
        "case a in x|esac) p1;; esac",
        "case a in x | esac | y) p1;; esac",
        "$(case a in b) p1;; esac)",
        "case a in b; c) p1;; esac",
        "case a in b>c) p1;; esac",
        "p0 $(time p1)",
        "p0 `time p1`",
        "$'p0' \"${y:-$(time -p case a in a) p1;; *) p''5 '$(p1)';; esac && p2)}\"",
        "p0 $(p1 <<EOF | x=1;time -p p2\nEOF\n)",
        "x=(2>1 in) p9",
        "x=(a;b) p9",
        // A comment inside of a condition, and what would be a quote in it.
        "[[ a && # \"\nb ]]; p1 #\"\n]]",
        "p0 <<'E'; [[ a &&\nE\nb ]]\np1\nE\n",
        "p0 <<'E'; x=(a\nE\n)\np1\nE\n",
    ] {
        assert!(policy(&[]).check(text, ROOT, &[]).unsure, "{text}");
    }
}
