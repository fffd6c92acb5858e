//! Option tables by class: what each class permits, and the dangerous neighbour of it.

use posse_actors::ports::PathLink;

use super::corpus::grants;
use super::*;

const GRANTS: [&str; 18] = [
    "git status",
    "git log",
    "git diff",
    "git show",
    "git blame",
    "npm test",
    "cargo test",
    "pytest",
    "ls",
    "cat",
    "grep",
    "rg",
    "head",
    "tail",
    "wc",
    "find",
    "du",
    "tree",
];

#[track_caller]
fn decides(expected: &str, commands: &[&str]) {
    let (policy, granted) = (policy(&[]), grants(&GRANTS));
    let link = |path: &str, target: &str| PathLink {
        path: path.to_owned(),
        target: Some(target.to_owned()),
    };
    let links = [link("/w/keys", "/home/user/.ssh"), link("/w/etc", "/etc")];
    for command in commands {
        let checked = policy.check_resolved(resolved(command, &links), &granted);
        assert_eq!(checked.decision, expected, "{command}: {}", checked.reason);
    }
}

#[test]
fn find_may_select_and_print() {
    decides(
        "allow",
        &[
            "find . -name '*.rs'",
            "find src tests -type f -size +10k -print0",
            "find . \\( -name a -o -name b \\) ! -newer Cargo.toml",
            "find . -path ./target -prune -o -name '*.rs' -print",
            "find src -name -delete",
            "find src -name -exec -print",
            "find -O3 -P src -newermt 2024-01-01 -printf '%s %p\\n'",
            "find src -name *.rs",
        ],
    );
    decides(
        "ask",
        &[
            "find . -exec cat {} +",
            "find . -execdir cat {} ';'",
            "find . -ok rm {} ';'",
            "find . -name x -delete",
            "find . -fprint x",
            "find . -fprintf x %p",
            "find . -fls x",
            "find -files0-from x",
            "find -L .",
            "find . -follow",
            "find -D * -print",
            "find . -name *",
            "find {src,-delete}",
            "find *",
            "find . -newer ~/.ssh/id_rsa",
            "find keys",
            "find -H etc/",
            "find ..",
            "find ~ -name x",
            "find /",
            "find . -unheard",
        ],
    );
}

#[test]
fn short_options_are_combined_with_values() {
    decides(
        "allow",
        &[
            "grep -nA3 x src/main.rs",
            "grep -Fxf docs/words.txt README.md",
            "head -qn3 README.md",
            "head -n -5 README.md",
            "tail -qn +2 README.md",
            "cargo test -qj4",
            "git status -sbuno",
            "git diff -Odocs/order --stat",
            "pytest -xvk 'a and b'",
        ],
    );
    decides(
        "ask",
        &[
            "grep -nf.env README.md",
            "grep -nf .env README.md",
            "grep -nfkeys/x README.md",
            "grep -inwxcoHfdocs/words.txt README.md",
            "grep -ie . /etc/shadow",
            "grep -iefoo .env",
            "cargo test -qZx",
            "rg -nz x",
            "rg -n. x",
            "pytest -vpevil",
            "pytest -vcx.ini",
            "git diff -O.env",
            "git diff -pO/etc/passwd",
        ],
    );
}

#[test]
fn value_that_a_program_does_not_take_is_an_operand() {
    decides("ask", &["git diff -U .env", "git log -p --min-parents .env", "git log -n .env -p"]);
}

#[test]
fn abbreviations_are_resolved_if_they_mean_nothing_else() {
    decides(
        "allow",
        &[
            "git status --porc",
            "git status --untr=no",
            "ls --rec src",
            "grep --max=2 --line-n x src/main.rs",
            "head --lin=3 README.md",
            "npm test --if-pres",
        ],
    );
    decides(
        "ask",
        &[
            "grep --dereference-r x src",
            "grep --exclude-f=/etc/shadow x README.md",
            "grep --direc=recurse x .",
            "grep --fil=.env README.md",
            "wc --files0=x",
            "wc --files0-f x",
            "npm test --script-sh x",
            "npm test --pre ..",
            "ls --deref -R",
            "git log --outp=x",
            "pytest --junit=x",
            "rg --hid x",
        ],
    );
}

#[test]
fn recursive_search_stays_in_visible_folders() {
    decides(
        "allow",
        &[
            "grep -rn x src tests/",
            "grep -r x .github/workflows",
            "grep -rn --include='*.rs' x .",
            "grep -r --include='*.ts' --exclude='*.d.ts' x",
            "grep -r --include=*.{rs,toml} x src",
            "git diff --no-index src docs",
            "rg x",
            "rg -u x src",
            "rg -g '*.toml' x",
            "grep -r --include='*.json' x src",
            "ls -R src",
        ],
    );
    decides(
        "ask",
        &[
            "grep -r x",
            "grep -r x .",
            "grep -r x src .",
            "grep -r x src/..",
            "grep -r x /w",
            "grep -r x .git",
            "grep -r x etc",
            "grep -R x src",
            "grep -d recurse x .",
            "grep -r --include='.env*' x .",
            "grep -r --include='.e\\nv' x .",
            "grep -r --include='*' x .",
            "grep -r --include=* x .",
            "grep -r --include=*.{rs,env} x .",
            "grep -r --exclude=y --include='*.rs' x .",
            "grep -r --exclude-dir=target x .",
            "grep -r --include='*.json' x .",
            "rg -g '*.json' x",
            "git diff --no-index . /dev/null",
            "git diff --no-index src etc",
            "rg -uu x",
            "rg -u --unrestricted x",
            "rg --hidden x",
            "rg -L x",
            "rg --type-add 'x:.en[v]' -tx x",
            "ls -LR src",
            "ls -R --dereference",
            "ls -R ~",
            "du -L src",
            "tree -l",
        ],
    );
}

#[test]
fn globs_and_lists_name_files_but_never_options() {
    decides(
        "allow",
        &[
            "head docs/*.md",
            "head *.md",
            "wc -l src/*.rs",
            "wc -l src/**/*.rs",
            "wc -l -- *.rs",
            "grep x src/*.rs",
            "grep x src/{a,b}.rs",
            "rg x src/*.rs",
            "pytest tests/test_*.py",
            "git diff -- src/*.rs",
            "git show v1^{commit} stash@{0} @{u}",
        ],
    );
    decides(
        "ask",
        &[
            "wc -l *.rs",
            "grep x *.rs",
            "rg x *.rs",
            "rg x {-z,src}",
            "pytest *.py",
            "git diff *.rs",
            "git diff {--output=x,HEAD}",
            "git diff -O{.env,x}",
            "head src/.e*",
            "head k*/x",
            "head */*.json",
            "cat src/**/*",
            "cat k*/*.rs",
            "head src/*",
            "git show HEAD:{.env,README.md}",
            "grep [a-z] README.md",
        ],
    );
}

#[test]
fn quoted_text_is_judged_by_its_value() {
    decides(
        "allow",
        &[
            "grep -n $'\\t' src/main.rs",
            "grep \"\\$HOME\" README.md",
            "cat docs/a\\ b.md",
            "find src -name \\*.rs",
            "git log --oneline \\\n  -5",
        ],
    );
    decides(
        "ask",
        &[
            "cat .\\env",
            "cat $'.env'",
            "cat $'\\x2eenv'",
            "cat $\"README.md\"",
            "l\\s src",
            "l's' src",
            "git lo\\g",
            "git log \\--output=x",
            "git log $'--output=x'",
        ],
    );
}

#[test]
fn patterns_of_git_do_not_select_secrets() {
    decides(
        "allow",
        &[
            "git log -- 'src/*' \"tests/**\"",
            "git log -- '*.json'",
            "git log -- ':(top,icase)readme.md' ':!docs' ':(exclude).env'",
            "git diff -I '^//' --word-diff-regex='[A-Za-z_]+'",
            "git log '--branches=feat/*'",
        ],
    );
    decides(
        "ask",
        &[
            "git log -p -- ':(top).env'",
            "git log -p -- ':/.en[v]'",
            "git log -p -- '.e\\nv'",
            "git log -p -- '**/.env.*'",
            "git log -p -- 'secrets/*'",
            "git log -p -- '*.env'",
            "git log --format --output=x",
            "git blame --contents .env README.md",
        ],
    );
}

#[test]
fn test_programs_load_nothing_else() {
    decides(
        "allow",
        &[
            "pytest -p no:cacheprovider -W error::DeprecationWarning tests",
            "npm test -w web --workspace packages/api --loglevel silent -- --reporter=dot",
            "cargo test -F crate/feature -- --skip slow",
        ],
    );
    decides(
        "ask",
        &[
            "pytest @args",
            "pytest -- @args",
            "pytest -k @args",
            "pytest -k -pevil",
            "pytest -- -pevil",
            "pytest -p evil",
            "pytest -W error::evil.Warning",
            "pytest --pdb",
            "pytest --log-file=x",
            "pytest --basetemp=x",
            "npm test -w ../other",
            "npm test -C ..",
            "npm test -- --reporter=./x.js",
            "npm test -- -- --config=x.js",
            "npm test -- -t --config=x.js",
            "cargo test --test --config=x",
            "npm test -- -u",
            "cargo test --target-dir=x",
            "cargo test -- --logfile=x",
        ],
    );
}

#[test]
fn names_from_a_listing_of_a_system_folder_are_not_deleted() {
    decides(
        "deny",
        &[
            "echo / | xargs rm -rf",
            "printf '%s\\0' ~ | xargs -0 rm -rf",
            "echo /* | xargs sudo rm -rf",
            "xargs rm -rf <<< \"$HOME\"",
            "echo / | xargs -I % sh -c 'rm -rf %'",
            "ls / | xargs rm -rf",
            "cd ~ && ls | xargs rm -rf",
            "find / -type f | grep log | xargs rm -f",
            "find \"$HOME\" -type f -print0 | xargs -0 rm -f",
            "find ~ -type f | while read -r f; do rm \"$f\"; done",
            "find / -exec sh -c 'rm \"$1\"' _ {} ';'",
            "find / | parallel rm",
            "rm -rf $(echo /)",
            "rm -f $(find / -type f)",
        ],
    );
    decides(
        "ask",
        &[
            "find . -type f | xargs rm",
            "find ~ -name '*.bak' | xargs rm",
            "find ~/.cache -type f | xargs rm -f",
            "ls ~ | grep tmp | xargs rm",
            "find / -name core | xargs ls -l",
            "echo build | xargs rm -rf",
            "find src -type f | while read f; do rm \"$f\"; done",
            "rm -rf $(echo build)",
        ],
    );
}
