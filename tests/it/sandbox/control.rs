//! Planting files that run later, or that steer an agent.

use super::{Proof, SandboxCase, Tiers, Twin};

/// `G` is a repository, or a folder similar to one.
const fn git(name: &'static str, script: &'static str) -> SandboxCase {
    SandboxCase {
        name,
        tiers: Tiers::Both,
        proof: Proof::Undone,
        script,
        forbidden: "G=$WS/.git",
        allowed: "G=$WS/plain",
        twin: Twin::Inside,
    }
}

/// `F` is a file that a program acts on, or an ordinary one.
const fn file(name: &'static str, script: &'static str) -> SandboxCase {
    SandboxCase {
        forbidden: "F=$WS/AGENTS.md",
        allowed: "F=$WS/plain/notes.md",
        ..git(name, script)
    }
}

/// Name of a file that does not exist.
const fn missing(name: &'static str, forbidden: &'static str) -> SandboxCase {
    SandboxCase {
        forbidden,
        allowed: "F=$WS/new/ordinary.md",
        ..git(name, "mkdir -p \"${F%/*}\" && echo evil > \"$F\" && [ -s \"$F\" ] && echo DONE")
    }
}

/// A parent folder of a repository.
const fn moved(name: &'static str, forbidden: &'static str) -> SandboxCase {
    SandboxCase { forbidden, allowed: "M=$WS/plain/x; G=$WS/plain/x/b/part", ..git(name, MOVE) }
}

const MOVE: &str = "mv -T $M $M-moved; mkdir -p $G/hooks; echo evil > $G/hooks/pre-commit
echo \"$E\" > $G/config; [ -s $G/hooks/pre-commit ] && echo DONE";

const BARE: &str = "mkdir -p $B/objects $B/refs $B/hooks && echo 'ref: refs/heads/main' > $B/$H
echo evil > $B/hooks/post-checkout; echo \"$E\" > $B/config
[ -s $B/config ] && echo DONE";

const LOOP: &str = "for i in $(seq 1 40); do
  mv -T $G/hooks $G/kept; mkdir $G/hooks; echo evil > $G/hooks/pre-commit; rm -rf $G/kept
done 2> /dev/null; [ -s $G/hooks/pre-commit ] && echo DONE";

const ARCHIVE: &str = "mkdir -p $WS/pack/hooks && echo evil > $WS/pack/hooks/pre-commit
tar -C $WS/pack -cf $WS/x.tar hooks && tar -C $G -xf $WS/x.tar && echo DONE";

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn rows() -> Vec<SandboxCase> {
    vec![
        git("a hook", "echo evil > $G/hooks/pre-commit && echo DONE"),
        git("a hook that may run", "install -m 755 /dev/stdin $G/hooks/pre-commit <<< evil && echo DONE"),
        git("a sample becomes a hook", "cd $G/hooks && mv pre-commit.sample pre-commit && echo DONE"),
        git("a link becomes a hook", "ln -s /bin/evil $G/hooks/pre-push && echo DONE"),
        git("another name becomes a hook", "echo evil > $WS/x && ln $WS/x $G/hooks/pre-push && echo DONE"),
        git("a hook moved in", "echo evil > $WS/x && mv $WS/x $G/hooks/post-merge && echo DONE"),
        git("a hook from an archive", ARCHIVE),
        git(
            "all hooks replaced",
            "rm -rf $G/hooks; mkdir $G/hooks; echo evil > $G/hooks/pre-commit; [ -s $G/hooks/pre-commit ] && echo DONE",
        ),
        git(
            "all hooks renamed away",
            "mv -T $G/hooks $G/old; mkdir $G/hooks; echo evil > $G/hooks/pre-commit && echo DONE",
        ),
        git(
            "hooks become a link",
            "mkdir $WS/h; echo evil > $WS/h/pre-commit; rm -rf $G/hooks; ln -sT $WS/h $G/hooks && echo DONE",
        ),
        git("hooks swapped in a loop", LOOP),
        git("hooks under another case", "mkdir $G/HOOKS && echo evil > $G/HOOKS/pre-commit && echo DONE"),
        git("settings appended", "printf '[alias]\\n\\tst = !evil\\n' >> $G/config && echo DONE"),
        git("settings edited in place", "sed -i s/bare/evil/ $G/config && echo DONE"),
        git("settings moved over", "echo \"$E\" > $WS/x && mv $WS/x $G/config && echo DONE"),
        git("settings become a link", "echo \"$E\" > $WS/x; ln -sfT $WS/x $G/config && echo DONE"),
        git("settings through another name", "ln $G/config $WS/x; echo \"$E\" >> $WS/x; grep -q evil $G/config && echo DONE"),
        git("settings by git itself", "git config -f $G/config core.fsmonitor evil && echo DONE"),
        git("settings emptied", ": > $G/config && echo \"$E\" > $G/config && echo DONE"),
        git("settings under another case", "echo \"$E\" > $G/CONFIG && echo DONE"),
        git("settings of a worktree", "echo \"$E\" > $G/config.worktree && echo DONE"),
        git("attributes nobody sees", "echo '* filter=evil' > $G/info/attributes && echo DONE"),
        git("where everything is", "echo /tmp/evil > $G/commondir && echo DONE"),
        git("hooks of a module", "mkdir -p $G/modules/new/hooks && cp -r $G/info $G/modules/new/ && mkdir -p $G/modules/new/objects $G/modules/new/refs && echo x > $G/modules/new/$H && echo evil > $G/modules/new/hooks/pre-commit && echo DONE")
            .with_forbidden("G=$WS/.git; H=HEAD")
            .with_twin(Twin::Inside, "G=$WS/plain; H=other"),
        git("hooks of a known module", "echo evil > $G/hooks/post-checkout && echo DONE")
            .with_forbidden("G=$WS/.git/modules/sub"),
        git("settings of a known module", "echo \"$E\" >> $G/config && echo DONE")
            .with_forbidden("G=$WS/.git/modules/sub"),
        git("hooks of an inner repository", "echo evil > $G/hooks/pre-commit && echo DONE")
            .with_forbidden("G=$WS/a/b/.git"),
        git("settings of a deep repository", "echo \"$E\" >> $G/config && echo DONE")
            .with_forbidden("G=$WS/1/2/3/4/.git"),
        git("the whole repository replaced", "mv -T $G $G-old; mkdir -p $G/hooks $G/objects $G/refs; echo 'ref: x' > $G/$H; echo evil > $G/hooks/pre-commit; echo \"$E\" > $G/config; [ -s $G/config ] && echo DONE")
            .with_forbidden("G=$WS/.git; H=HEAD")
            .with_twin(Twin::Inside, "G=$WS/plain; H=other"),
        git("the repository becomes a link", "mkdir -p $WS/e/hooks; echo evil > $WS/e/hooks/pre-commit; mv -T $G $G-x && ln -sT $WS/e $G; [ -L $G ] && echo DONE"),
        git("the repository becomes a pointer", "mv -T $G $G-x; echo 'gitdir: /tmp/evil' > $G && echo DONE"),
        moved("a repository renamed at depth one", "M=$WS/d1; G=$WS/d1/.git"),
        moved("a repository renamed at depth two", "M=$WS/a; G=$WS/a/b/.git"),
        moved("a repository renamed in the middle", "M=$WS/a/b; G=$WS/a/b/.git"),
        moved("a repository renamed at depth four", "M=$WS/1/2; G=$WS/1/2/3/4/.git"),
        moved("a repository renamed at the top of four", "M=$WS/1; G=$WS/1/2/3/4/.git"),
        moved("the repository itself renamed", "M=$WS/1/2/3/4/.git; G=$WS/1/2/3/4/.git"),
        git("moved away, written and moved back", "mv -T $M $M-x && echo evil >> $M-x/$C; mv -T $M-x $M; grep -q evil $M/$C && echo DONE")
            .with_forbidden("M=$WS/a; C=b/.git/config")
            .with_twin(Twin::Inside, "M=$WS/plain/x; C=b/part/config"),
        git("a bare repository", BARE)
            .with_forbidden("B=$WS/store; H=HEAD")
            .with_twin(Twin::Inside, "B=$WS/store; H=other"),
        git("a new repository", "git init -q $WS/fresh && git -C $WS/fresh config $S && echo DONE")
            .with_forbidden("S='core.fsmonitor evil'")
            .with_twin(Twin::Inside, "S='user.name me'"),
        git("a hook in a new repository", "git init -q $WS/fresh && echo evil > $WS/fresh/$D && echo DONE")
            .with_forbidden("D=.git/hooks/post-commit")
            .with_twin(Twin::Inside, "D=README.md"),
        git("a template with hooks", "mkdir -p $WS/t/hooks && echo evil > $WS/t/hooks/$N && git init -q --template=$WS/t $WS/fresh && [ -e $WS/fresh/.git/hooks/$N ] && echo DONE")
            .with_forbidden("N=post-commit")
            .with_twin(Twin::Inside, "N=post-commit.sample"),
        git("a pointer that leads outside", "mkdir -p $WS/p && echo \"gitdir: $L\" > $WS/p/.git && echo DONE")
            .with_forbidden("L=$OUT/evil")
            .with_twin(Twin::Inside, "L=../.git/modules/sub"),
        git("a known pointer changed", "echo 'gitdir: /tmp/evil' > $F && echo DONE")
            .with_forbidden("F=$WS/sub/.git")
            .with_twin(Twin::Inside, "F=$WS/sub/git"),
        git("a linked pointer", "mkdir $WS/p; ln -s $OUT/evil $WS/p/$N && echo DONE")
            .with_forbidden("N=.git")
            .with_twin(Twin::Inside, "N=git"),
        file("instructions changed", "echo evil > $F && echo DONE"),
        file("instructions appended", "echo evil >> $F && echo DONE"),
        file("instructions edited in place", "sed -i '1i evil' $F && echo DONE"),
        file("instructions moved over", "echo evil > $WS/x && mv $WS/x $F && echo DONE"),
        file("instructions removed and made", "rm $F; echo evil > $F && echo DONE"),
        file("instructions become a link", "echo evil > $WS/x; ln -sf $WS/x $F && echo DONE"),
        file("instructions become a folder", "rm $F; mkdir $F && echo evil > $F/x && echo DONE"),
        file("instructions through another name", "ln $F $WS/x; echo evil >> $WS/x; grep -q evil $F && echo DONE"),
        file("instructions through a mapping", "python3 -IS $PROBE mapped $F"),
        file("instructions copied over", "echo evil > $WS/x && cp $WS/x $F && echo DONE"),
        file("deep instructions changed", "echo evil > $F && echo DONE")
            .with_forbidden("F=$WS/src/nested/CLAUDE.md"),
        file("deep instructions after a rename", "D=${F%/*}; mv -T $D $D-x; mkdir $D; echo evil > $F && echo DONE")
            .with_forbidden("F=$WS/src/nested/CLAUDE.md")
            .with_twin(Twin::Inside, "F=$WS/plain/folder/tasks.json"),
        file("servers changed", "echo '{\"evil\":1}' > $F && echo DONE").with_forbidden("F=$WS/.mcp.json"),
        file("tasks changed", "echo '{\"evil\":1}' > $F && echo DONE")
            .with_forbidden("F=$WS/.vscode/tasks.json"),
        file("tasks added", "echo '{\"evil\":1}' > ${F%/*}/launch.json && echo DONE")
            .with_forbidden("F=$WS/.vscode/tasks.json")
            .with_twin(Twin::Inside, "F=$WS/plain/folder/tasks.json"),
        file("tasks in a replaced folder", "D=${F%/*}; mv -T $D $WS/x; mkdir $D; echo evil > $F && echo DONE")
            .with_forbidden("F=$WS/.vscode/tasks.json")
            .with_twin(Twin::Inside, "F=$WS/plain/folder/tasks.json"),
        missing("new instructions", "F=$WS/CLAUDE.md"),
        missing("new instructions in a folder", "F=$WS/src/deep/AGENTS.md"),
        missing("instructions in other letters", "F=$WS/agents.MD"),
        missing("instructions in odd letters", "F=\"$WS/\"$'AGENT\\u017f.md'"),
        missing("instructions with an invisible letter", "F=\"$WS/\"$'CLAU\\u200bDE.md'"),
        missing("instructions below a newline", "F=\"$WS/\"$'a\\nb/CLAUDE.md'"),
        missing("new servers", "F=$WS/src/.mcp.json"),
        missing("our own folder", "F=$WS/.posse/config.jsonc"),
        missing("our own folder in other letters", "F=$WS/.Posse/config.jsonc"),
        missing("agents", "F=$WS/.agents/evil.md"),
        missing("another agent's settings", "F=$WS/.claude/settings.json"),
        missing("another agent's rules", "F=$WS/.cursorrules"),
        missing("an environment of a shell", "F=$WS/.envrc"),
        missing("a start file of a shell", "F=$WS/home/.bashrc"),
        missing("an editor's tasks", "F=$WS/.zed/tasks.json"),
        missing("another editor's tasks", "F=$WS/.idea/workspace.xml"),
        missing("an editor's start file", "F=$WS/.exrc"),
        missing("a container of an editor", "F=$WS/.devcontainer/devcontainer.json"),
        missing("a pipeline", "F=$WS/.github/workflows/evil.yml"),
        missing("hooks in the workspace", "F=$WS/.husky/pre-push"),
        missing("settings of a build", "F=$WS/.cargo/config.toml"),
        git("instructions from an archive", "mkdir $WS/k; echo evil > $WS/k/$N; tar -C $WS/k -cf $WS/k.tar $N && rm -r $WS/k && tar -C $WS -xf $WS/k.tar && [ -e $WS/$N ] && echo DONE")
            .with_forbidden("N=GEMINI.md")
            .with_twin(Twin::Inside, "N=NOTES.md"),
        git("instructions by a link", "echo evil > $WS/x && ln -s x $WS/$N && echo DONE")
            .with_forbidden("N=GEMINI.md")
            .with_twin(Twin::Inside, "N=NOTES.md"),
        git("instructions by another name", "echo evil > $WS/x && ln $WS/x $WS/$N && echo DONE")
            .with_forbidden("N=GEMINI.md")
            .with_twin(Twin::Inside, "N=NOTES.md"),
        git("instructions by a rename of a folder", "mkdir -p $WS/k && echo evil > $WS/k/tasks.json && mv -T $WS/k $WS/$N && echo DONE")
            .with_forbidden("N=.fleet")
            .with_twin(Twin::Inside, "N=fleet"),
    ]
}
