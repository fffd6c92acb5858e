//! Programs that run another program in an environment of a project, or several times: `poetry run
//! PROGRAM`, `npm exec PROGRAM`, `hyperfine TEXT`.

use super::{Call, Effects, Run, Walker, text_of};
use crate::shell::Names;

/// A program that runs the program in its last words.
struct Runner {
    names: Names,
    /// Subcommands after which the program follows; none if it follows the options.
    subcommands: Names,
    /// Options whose value is the next word.
    valued: Names,
}

/// From the manuals of the programs.
const RUNNERS: &[Runner] = &[
    Runner {
        names: Names("poetry pipenv pdm hatch rye pixi uv pipx"),
        subcommands: Names("run"),
        valued: Names(
            "-C -P -e -p --directory --project --with --python --extra --group --package --env-file --env --spec \
             --index-url --manifest-path --environment",
        ),
    },
    Runner {
        names: Names("uvx bunx"),
        subcommands: Names(""),
        valued: Names("--from --with -p --python"),
    },
    Runner {
        names: Names("conda mamba micromamba"),
        subcommands: Names("run"),
        valued: Names("-n --name -p --prefix --cwd"),
    },
    Runner {
        names: Names("bundle rbenv pyenv nodenv jenv mise asdf opam"),
        subcommands: Names("exec x"),
        valued: Names("-C --cd --gemfile --switch"),
    },
    Runner {
        names: Names("npm pnpm yarn"),
        subcommands: Names("exec x dlx"),
        valued: Names("-w --workspace -p --package --prefix -C --dir --cwd --filter -F"),
    },
    Runner { names: Names("entr"), subcommands: Names(""), valued: Names("") },
];

/// Programs whose operands are shell texts, with the options whose value is such a text, and those
/// whose value is not.
const HYPERFINE_TEXTS: Names =
    Names("-p --prepare -s --setup -c --cleanup -C --conclude --reference");
const HYPERFINE_VALUED: Names = Names(
    "-w --warmup -m --min-runs -M --max-runs -r --runs -P --parameter-scan -D --parameter-step-size \
     -L --parameter-list -S --shell --style --sort -u --time-unit --export-asciidoc --export-csv \
     --export-json --export-markdown --export-orgmode --output --input -n --command-name",
);

impl Walker {
    /// Walks through the program that a runner runs. `None` if `call` is not that of a runner.
    pub(super) fn runner(&mut self, call: &Call<'_>, run: &mut Run) -> Option<Effects> {
        if call.name == "hyperfine" {
            return Some(self.measured(call));
        }
        let runner = RUNNERS.iter().find(|runner| runner.names.has(call.name))?;
        let mut wants_subcommand = runner.subcommands.iter().next().is_some();
        let mut effects = Effects::default();
        let mut at = 0;
        let mut after_unknown = false;
        while let Some(word) = call.words.get(at) {
            let is_option = word.starts_with('-') && word.len() > 1;
            if is_option {
                let takes_text = match call.name {
                    "npm" => matches!(*word, "-c" | "--call"),
                    "entr" => word.contains('s'),
                    _ => false,
                };
                if takes_text {
                    return Some(self.texts(call.rest.get(at + 1), call.input));
                }
                let takes_value = runner.valued.has(word);
                // It may take the next word as its value.
                after_unknown = *word != "--" && !takes_value && !word.contains('=');
                at += 1 + usize::from(takes_value);
                continue;
            }
            if wants_subcommand {
                if !runner.subcommands.has(word) {
                    return None;
                }
                wants_subcommand = false;
            } else {
                let ran = self.part(&call.rest[at..], run, call.at + at, call.input);
                effects = Effects { taint: effects.taint | ran.taint, ..ran };
                if !std::mem::take(&mut after_unknown) {
                    break;
                }
            }
            after_unknown = false;
            at += 1;
        }
        Some(effects)
    }

    /// Walks through the commands that `hyperfine` measures.
    fn measured(&mut self, call: &Call<'_>) -> Effects {
        self.findings.unsure = true;
        let mut effects = Effects::default();
        let mut at = 0;
        while let Some(word) = call.words.get(at) {
            at += 1;
            if HYPERFINE_VALUED.has(word) {
                at += 1;
            } else if HYPERFINE_TEXTS.has(word) || !word.starts_with('-') {
                let text = if word.starts_with('-') { at } else { at - 1 };
                at = text + 1;
                effects = self.texts(call.rest.get(text), call.input);
            } else if let Some((option, text)) = word.split_once('=')
                && HYPERFINE_TEXTS.has(option)
            {
                self.nested_apart(&text_of(text), call.input.clone());
            }
        }
        effects
    }
}
