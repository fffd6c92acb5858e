//! Options that move operands, select files by patterns, or run programs.

use super::corpus::grants;
use super::*;

const GRANTS: [&str; 7] =
    ["grep", "rg", "git log", "git shortlog", "git diff", "git show", "git add"];

#[track_caller]
fn decides(expected: &str, commands: &[&str]) {
    let (policy, granted) = (policy(&[]), grants(&GRANTS));
    for command in commands {
        let checked = policy.check(command, ROOT, &granted);
        assert_eq!(checked.decision, expected, "{command}: {}", checked.reason);
    }
}

#[test]
fn pattern_given_by_an_option_makes_every_operand_a_file() {
    decides(
        "ask",
        &[
            "grep -e . /etc/shadow",
            "grep -e. /etc/shadow",
            "grep /etc/shadow -e .",
            "grep --regexp=. /etc/shadow",
            "grep --regexp . /etc/shadow",
            "grep -i -e . ../other",
            "grep -e . .env",
            "grep -e x -- /etc/shadow",
            "grep -ie . /etc/shadow",
            "rg -e . /etc",
            "rg --files /root",
            "rg /etc --files",
            "rg --regexp=. ~/x",
            "grep -e . /proc/self/environ",
        ],
    );
    decides(
        "allow",
        &[
            "grep /etc/shadow src/main.rs",
            "grep -e /etc/shadow src/main.rs",
            "grep -E a README.md",
            "rg -e a -e b src",
            "rg --files src",
            "rg /etc src",
        ],
    );
}

#[test]
fn patterns_of_names_do_not_select_secrets() {
    decides(
        "ask",
        &[
            "rg -g '.env*' ''",
            "rg -g .env ''",
            "rg --glob '.e*' x",
            "rg --glob='?env' x",
            "rg --iglob .ENV x",
            "rg --iglob='.E[mn]V' x",
            "rg -g '{a,.env}' x",
            "rg -g '*' x",
            "rg -g 'config/**' x",
            "rg -g '.ssh/*' x",
            "git log -p -- '.[e]nv'",
            "git log -p -- ':(icase).ENV'",
            "git log -p -- ':(glob)**/.en?'",
            "git diff -- '*.pem'",
            "git log -L1,9:.env",
            "git log -L 1,9:config/.env",
            "git show -- 'id_*'",
        ],
    );
    decides(
        "allow",
        &[
            "rg -g '*.rs' x",
            "rg -g '**/*.ts' x src",
            "rg -g '*.{ts,tsx}' x",
            "rg -g '!*.lock' x",
            "rg -g '!.env' x",
            "git log -p -- '*.rs'",
            "git log -L1,9:src/main.rs",
            "git log -L :main:src/main.rs",
            "git diff -- 'src/*.toml'",
            "git diff HEAD~2 -- src",
        ],
    );
}

#[test]
fn formats_do_not_check_signatures() {
    decides(
        "ask",
        &[
            "git log --format=%G?",
            "git log --format=%+GK",
            "git log --pretty=%-GS",
            "git log --pretty='tformat:% GK'",
            "git log --pretty='%h %+- GK'",
            "git shortlog --group=format:%GS",
            "git shortlog --group='format:%+GS'",
            "git show --format=%h%GG",
        ],
    );
    decides(
        "allow",
        &[
            "git log --format='%h %an %s'",
            "git log --pretty=oneline",
            "git log --format='%C(green)%h%Creset G'",
            "git shortlog --group=author",
            "git log --format='100%'",
        ],
    );
}
