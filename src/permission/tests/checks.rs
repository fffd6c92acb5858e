//! Programs that check, build and test a project: a grant of the program covers its usual options,
//! and no option that changes files, loads other settings or runs another program.

use super::corpus::grants;
use super::*;

/// Commands that `grants` must cover, and commands that they must not.
#[track_caller]
fn covers(granted: &[&str], harmless: &[&str], other: &[&str]) {
    let (policy, granted) = (policy(&[]), grants(granted));
    for (expected, commands) in [("allow", harmless), ("ask", other)] {
        for command in commands {
            let checked = policy.check(command, ROOT, &granted);
            assert_eq!(checked.decision, expected, "{command}: {}", checked.reason);
        }
    }
}

#[test]
fn builds_take_targets_and_no_variables_or_other_files() {
    covers(
        &["make", "ninja", "cmake --build", "ctest", "npm run", "meson test"],
        &[
            "make",
            "make test",
            "make -j4 build lint",
            "make -C src -k all",
            "make --no-print-directory docs/index.html",
            "LC_ALL=C make -n",
            "ninja -C build -j 8 all",
            "cmake --build build --target app -j4",
            "ctest --test-dir build --output-on-failure -R 'parse.*'",
            "npm run lint",
            "npm run test -- --watch=false -t 'a b'",
            "meson test -C build --suite unit",
        ],
        &[
            "make SHELL=./evil",
            "make test CC=./evil",
            "make -f other.mk",
            "make -sf other.mk",
            "make -I ../inc",
            "make -C ..",
            "make --eval='x:;id' x",
            "make -E x",
            "make -- SHELL=./evil",
            "make \"$X\"",
            "MAKEFLAGS=-n make",
            "ninja -f other.ninja",
            "ninja -t clean",
            "cmake --build build -- SHELL=./evil",
            "cmake --build ../other",
            "ctest -S script.cmake",
            "ctest --build-and-test a b",
            "npm run lint -- --fix",
            "npm run lint --script-shell=./evil",
            "npm run --prefix ../x lint",
            "meson test --wrapper ./evil",
        ],
    );
}

#[test]
fn checks_of_javascript_change_nothing() {
    covers(
        &["eslint", "tsc", "prettier", "jest", "node --check", "npx tsc"],
        &[
            "eslint src --ext .ts,.tsx --max-warnings 0",
            "eslint --format json 'src/a b.ts'",
            "tsc --noEmit -p tsconfig.json",
            "npx tsc --noEmit --pretty false",
            "prettier --check src",
            "jest --ci --coverage src/a.test.ts",
            "node --check src/index.js",
        ],
        &[
            "eslint --fix src",
            "eslint -c other.js src",
            "eslint --config=./other.js src",
            "eslint --rulesdir x src",
            "eslint -f ./x.js src",
            "eslint --format=../x src",
            "eslint -o out.txt src",
            "eslint ../other",
            "eslint .env",
            "tsc --noEmit false",
            "tsc --noEmit --pretty false true",
            "tsc --outDir ../x",
            "tsc -p ../other/tsconfig.json",
            "tsc @options.txt",
            "tsc --build --clean",
            "tsc --generateTrace src",
            "prettier --write src",
            "prettier -w src",
            "prettier --check --plugin=./x.js src",
            "prettier --parser ./x.js --check src",
            "jest --config other.js",
            "jest -u",
            "node --check --require=./x.js src/index.js",
            "node --check src/index.js -e 1 ../x.js",
            "npx --package evil tsc",
        ],
    );
}

#[test]
fn checks_of_python_load_no_other_settings() {
    covers(
        &["python -m pytest", "mypy", "ruff check", "black", "flake8", "python3 -m unittest"],
        &[
            "python -m pytest -q tests/test_a.py::test_b",
            "python -m pytest -k 'a and not b' --maxfail=1",
            "mypy --strict src/app.py",
            "ruff check --select E,F src",
            "black --check src",
            "flake8 --max-line-length=100 src",
            "python3 -m unittest discover -s tests -v",
            "python3 -m unittest tests.test_a.CaseB.test_c",
        ],
        &[
            "python -m pytest -p evil",
            "python -m pytest -c ../x.ini",
            "python -m pytest --junitxml=../out.xml",
            "python -m pytest @args",
            "PYTHONPATH=./x python -m pytest",
            "python3 -m pytest",
            "python -m other",
            "mypy --install-types src",
            "mypy --python-executable ./evil src",
            "mypy --config-file x.ini src",
            "mypy @x src",
            "ruff check --fix src",
            "ruff check --output-file x src",
            "ruff check --config x.toml src",
            "black --config x.toml src",
            "black ../other",
            "flake8 --config=x src",
            "python3 -m unittest ../x",
            "python3 -m unittest discover -s ..",
        ],
    );
}

#[test]
fn builds_write_only_in_folders_of_builds() {
    covers(
        &["go build", "go list", "cargo clippy", "cargo fmt", "dotnet test", "mvn test"],
        &[
            "go build ./...",
            "go build -o bin/app ./cmd/app",
            "go build -o /dev/null ./...",
            "go list -f '{{.Dir}}' ./...",
            "cargo clippy --all-targets -- -D warnings -A clippy::too_many_arguments",
            "cargo fmt --all -- --check",
            "dotnet test --no-build tests/A.csproj",
            "mvn test -q -Dtest='Foo#bar*'",
        ],
        &[
            "go build -o ~/bin/x .",
            "go build -o src/main.go .",
            "go build -o bin/../.git/hooks/pre-commit .",
            "go build -o bin/.x/y .",
            "go build -toolexec ./x ./...",
            "go build -ldflags -extld=./x .",
            "go build -C ../other",
            "cargo clippy --fix --allow-dirty",
            "cargo clippy -- -C linker=./evil",
            "cargo clippy --config x.toml",
            "cargo fmt -- --config-path ../x",
            "dotnet test @x.rsp",
            "dotnet test /p:A=b",
            "dotnet test --settings x.runsettings tests/A.csproj",
            "mvn test -DargLine=-javaagent:x",
            "mvn test -f ../other",
        ],
    );
}

#[test]
fn listings_of_archives_and_scripts_run_nothing() {
    covers(
        &["tar", "unzip -l", "bash -n", "fd", "bat", "man", "head", "python3 -m json.tool"],
        &[
            "tar -tf dist/app.tar",
            "tar tzvf dist/app.tgz | head",
            "unzip -l dist/app.zip",
            "bash -n scripts/build.sh",
            "fd -e rs",
            "fd -t f config src",
            "bat -p --color=never src/main.rs",
            "man sort | head -40",
            "python3 -m json.tool package.json",
        ],
        &[
            "tar -xf dist/app.tar",
            "tar -tf a.tar -I ./evil",
            "tar -tf a.tar --use-comp=./evil",
            "tar -tf a.tar --checkpoint-action=exec=./evil",
            "tar -tf host:a.tar",
            "tar -tf ../a.tar",
            "unzip -p dist/app.zip x",
            "bash -n +n scripts/build.sh",
            "bash -n +n",
            "bash -n scripts/build.sh -c id",
            "BASH_ENV=./x bash -n scripts/build.sh",
            "fd -x rm",
            "fd -e tmp -X rm",
            "fd -Ix ./evil",
            "bat --pager=./evil README.md",
            "bat .env",
            "man -P ./evil ls",
            "man -H./evil ls",
            "man ./evil.1",
            "man ../x",
            "python3 -m json.tool package.json src/out.json",
        ],
    );
}

#[test]
fn commits_take_their_message_from_the_command_line() {
    covers(
        &["git commit", "git switch", "git stash", "git tag"],
        &[
            "git commit -m 'fix: a (see #1)'",
            "git commit -am \"x\" --no-edit",
            "git commit --amend --no-edit",
            "git switch -c topic",
            "git switch -",
            "git stash",
            "git tag -n1 --list",
        ],
        &[
            "git commit -F .env",
            "git commit --fil=/root/.ssh/id_rsa",
            "git commit -t .env",
            "git commit -C HEAD~1",
            "git commit -S -m x",
            "git commit -n -m x",
            "git switch -f main",
            "git switch --discard-changes main",
            "git stash drop",
            "git stash clear",
            "git tag v1",
            "git tag -d v1",
        ],
    );
}

#[test]
fn suggested_grant_of_a_build_names_its_target() {
    let suggested = |command: &str| policy(&[]).check(command, ROOT, &[]).grant;
    assert_eq!(suggested("make test").as_deref(), Some("make test"));
    assert_eq!(suggested("npm run lint").as_deref(), Some("npm run lint"));
    // It lists the scripts; the grant would cover all of them.
    assert_eq!(suggested("npm run"), None);
    let reason = |command: &str| policy(&[]).check(command, ROOT, &[]).reason;
    let any = "a saved answer allows `make` with any target and known options";
    assert!(reason("make").contains(any), "{}", reason("make"));
    assert!(!reason("make test").contains("any target"), "{}", reason("make test"));
    assert_eq!(suggested("mypy src").as_deref(), Some("mypy"));
    assert_eq!(suggested("python -m pytest -q").as_deref(), Some("python -m pytest"));
    assert_eq!(suggested("python -m http.server"), None);
    assert_eq!(suggested("git commit -m x").as_deref(), Some("git commit"));
    for command in [
        "git push origin main",
        "git clean -fdx",
        "git reset --hard",
        "git rm a",
        "git -C . push origin main",
        "git --work-tree=. clean -fdx",
        "git stash drop",
        "git branch -D x",
        "git worktree remove --force a",
        "git lfs push",
        "zsh x.sh",
        "systemd-run make",
        "gh auth token",
        "kubectl exec a",
        "/usr/bin/rm a",
    ] {
        assert_eq!(suggested(command), None, "{command}");
    }
}

#[test]
fn addresses_are_no_files() {
    covers(
        &["deno test", "deno check", "helm template", "cat", "pytest"],
        &[
            "deno test src/a.ts",
            "helm template charts/app",
            "pytest test_a.py::test_b",
            "cat a.py:12",
        ],
        &[
            "deno test https://x.example/x.ts",
            "deno test npm:x",
            "deno check jsr:@x/y",
            "helm template oci://x.example/y",
            "helm template charts/app -f https://x.example/?data",
            "cat HTTPS://x.example",
        ],
    );
}
