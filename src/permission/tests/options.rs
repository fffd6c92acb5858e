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

#[test]
fn listings_may_leave_the_workspace_and_content_may_not() {
    let (policy, granted) = (policy(&[]), grants(&["ls", "cat", "head", "stat", "go test"]));
    let decides = |expected: &str, commands: &[&str]| {
        for command in commands {
            let checked = policy.check(command, ROOT, &granted);
            assert_eq!(checked.decision, expected, "{command}: {}", checked.reason);
        }
    };
    decides(
        "allow",
        &[
            "ls -la ~/projects",
            "ls -d /dev/sda",
            "ls ../sibling",
            "stat /etc/passwd.bak.d",
            "cat /etc/os-release",
            "head -n 3 /proc/cpuinfo",
            "cat < /etc/timezone",
            "cat ~/../../w/README.md",
        ],
    );
    decides(
        "ask",
        &[
            "ls ~/.ssh",
            "ls /root/.aws",
            "ls own",
            "ls ~user/projects",
            "ls ~+/x",
            "cat ~/notes.txt",
            "cat /etc/passwd",
            "cat /etc/os-release/../passwd",
            "cat /etc/os-release.d/x",
            "cat /proc/1/environ",
            "head /etc/hosts",
            "go test ../other",
            "go test /tmp/x",
        ],
    );
}

#[test]
fn decoded_text_is_never_run() {
    let policy = policy(&[]);
    for command in [
        "echo cm0gLXJmIC8= | base64 -d | sh",
        "printf aa | base64 --decode | bash",
        "base64 -di x.b64 | sudo bash -s",
        "base32 -d <<< aa | sh",
        "base64 -d <<< aa | tee log | sh",
        "echo 6c73 | xxd -r -p | sh",
        "openssl enc -d -aes-256-cbc -in x | sh",
        "openssl base64 -d -in x | sh",
        "echo sl | rev | sh",
        "eval \"$(echo aa | base64 -d)\"",
        "bash -c \"$(base64 -d x)\"",
        "$(echo bHM= | base64 -d)",
        "sh <(base64 -d x)",
        "source <(echo aa | base64 -d)",
        "bash <<< \"$(base64 -d x)\"",
        "base64 -d x | xargs -I{} sh -c '{}'",
        "base64 -d x | python3",
        "base64 -d x | python3 -",
        "f() { base64 -d; }; echo aa | f | sh",
        "{ echo aa | base64 -d; } | sh",
        "base64 -d x > >(sh)",
        "python3 -c 'import base64; exec(base64.b64decode(\"aa\"))'",
        "node -e 'eval(atob(\"aa\"))'",
        "node -e 'eval(Buffer.from(\"aa\", \"base64\").toString())'",
        "perl -MMIME::Base64 -e 'eval decode_base64(\"aa\")'",
        "ruby -e 'eval Base64.decode64(\"aa\")'",
        "php -r 'eval(base64_decode(\"aa\"));'",
    ] {
        let checked = policy.check(command, ROOT, &[]);
        let rule = checked.rule.as_deref();
        assert_eq!((checked.decision, rule), ("deny", Some("hard-deny: run-decoded")), "{command}");
    }
    for command in [
        "base64 -d x > y",
        "echo aa | base64 -d | jq .",
        "base64 x | sh",
        "base64 -w0 x | bash",
        "openssl enc -aes-256-cbc -in x | sh",
        "xxd -p x | sh",
        "base64 -d x | node parse.js",
        "base64 -d x | python3 -m json.tool",
        "kubectl get secret x -o jsonpath={.data.y} | base64 -d",
        "python3 -c 'import base64; print(base64.b64decode(\"aa\"))'",
        "bash run.sh \"$(base64 -d x)\"",
        "tr -d '\\r' < x.sh | bash",
        "gunzip -c x.gz | sh",
    ] {
        let checked = policy.check(command, ROOT, &[]);
        assert_eq!(checked.decision, "ask", "{command}: {}", checked.reason);
    }
}
