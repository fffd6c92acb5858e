//! `/keymap` and `/vim`: keys of the terminal UI.

use crate::commands::{COMMAND, Command, CommandGroup};

pub(super) const KEYMAP: Command = Command {
    name: "keymap",
    brief: "show keys and change them",
    help: "show the keys of all actions; select one to press its new key, which is saved",
    group: CommandGroup::Program,
    run: |context, _| context.change_keys(),
    ..COMMAND
};

pub(super) const VIM: Command = Command {
    name: "vim",
    brief: "switch vim keys in the prompt on or off",
    help: "use vim keys in the prompt, or stop to; `ui.vim` sets it for all sessions",
    group: CommandGroup::Program,
    run: |context, _| context.toggle_vim(),
    ..COMMAND
};
