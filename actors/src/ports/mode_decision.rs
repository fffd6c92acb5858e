//! Decision of a permission mode about an effect: a pure function of the mode, the class of the
//! effect, its coverage by rules and grants, and the confinement that the machine offers.

use crate::event::PermissionMode;

/// Words with which the reason of a decision says that a command needs the network. Front ends advise
/// by them.
pub const NEEDS_NETWORK: &str = "needs the network";

/// Class of an effect, as permission modes distinguish effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectClass {
    /// A tool reads files of the workspace or data of the session.
    Read,
    /// A command that is known to read only.
    ReadingCommand,
    /// A file tool changes files of the workspace.
    Edit,
    /// A command that only creates, copies or moves files inside the workspace and replaces none.
    FileCommand,
    /// Any other command.
    Command,
    /// A command that is known to delete or overwrite files, or to discard work of git.
    Destruction,
    /// A command that deletes only files which a checkpoint before it can bring back.
    RestorableDeletion,
    /// A command that is known to need the network.
    NetworkCommand,
    /// The start of a subagent at the provider of the main agent.
    Agent,
    /// The start of a subagent at another provider, which then receives the context.
    ForeignAgent,
    /// A call of a tool whose effects are unknown or reach beyond the machine.
    Unknown,
}

/// Coverage of an effect by what stands above permission modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// It is always denied, or a deny rule matches.
    Denied,
    /// It needs approval each time, whatever grants, rules or flags say.
    AskedEachTime,
    /// A rule asks about it.
    AskedByRule,
    /// A grant covers it, or a rule allows it.
    Granted,
    /// Nothing of these.
    Uncovered,
}

/// Confinement that the machine and the settings offer for commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandConfinement {
    /// The full sandbox tier.
    Full,
    /// The reduced sandbox tier.
    Reduced,
    /// The reduced sandbox tier, where commands can read secret files.
    ReducedWithSecrets,
    /// No sandbox.
    None,
}

/// Profile in which an effect that a mode allows takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeProfile {
    /// Nothing can be written, and there is no network.
    ReadOnly,
    /// The workspace can be written, and there is no network.
    Workspace,
    /// The confinement of a call that a grant, a rule or a person allows.
    Configured,
}

/// Decision of a mode about an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeDecision {
    /// The effect takes place without a permission request.
    Allow(ModeProfile),
    /// A permission request decides. A call that it allows runs in this profile.
    Ask(ModeProfile),
    /// The effect does not take place.
    Deny,
}

/// Decides about an effect of `class` with this `coverage`, in `mode` and within `confinement`.
#[expect(clippy::wildcard_enum_match_arm, reason = "only the named coverages allow something")]
pub fn decide(
    mode: PermissionMode,
    class: EffectClass,
    coverage: Coverage,
    confinement: CommandConfinement,
) -> ModeDecision {
    if coverage == Coverage::Denied {
        return ModeDecision::Deny;
    }
    match mode {
        PermissionMode::Plan => plan(class, coverage, confinement),
        PermissionMode::Locked => match coverage {
            Coverage::Granted => ModeDecision::Allow(ModeProfile::Configured),
            Coverage::Uncovered if class == EffectClass::Read => {
                ModeDecision::Allow(ModeProfile::ReadOnly)
            }
            _ => ModeDecision::Deny,
        },
        PermissionMode::Ask | PermissionMode::Edits | PermissionMode::Auto => match coverage {
            Coverage::Granted => ModeDecision::Allow(ModeProfile::Configured),
            Coverage::Uncovered => uncovered(mode, class, confinement)
                .map_or(ModeDecision::Ask(ModeProfile::Configured), ModeDecision::Allow),
            _ => ModeDecision::Ask(ModeProfile::Configured),
        },
    }
}

/// Decision of the mode `plan`: a grant does not widen it. Asked about are only the start of a
/// subagent, what a rule asks about, and commands that only read where no sandbox confines them or
/// they could read secret files.
#[expect(clippy::wildcard_enum_match_arm, reason = "only the named coverages allow something")]
fn plan(class: EffectClass, coverage: Coverage, confinement: CommandConfinement) -> ModeDecision {
    let runs = match class {
        EffectClass::ReadingCommand if !is_safe(confinement) => {
            return match coverage {
                Coverage::Granted => ModeDecision::Allow(ModeProfile::ReadOnly),
                Coverage::Uncovered | Coverage::AskedByRule => {
                    ModeDecision::Ask(ModeProfile::ReadOnly)
                }
                _ => ModeDecision::Deny,
            };
        }
        EffectClass::Read | EffectClass::ReadingCommand => true,
        EffectClass::FileCommand
        | EffectClass::Command
        | EffectClass::Destruction
        | EffectClass::RestorableDeletion => confinement == CommandConfinement::Full,
        // The calls of the subagent are judged in the same mode.
        EffectClass::Agent | EffectClass::ForeignAgent => {
            return match coverage {
                Coverage::Granted => ModeDecision::Allow(ModeProfile::Configured),
                _ => ModeDecision::Ask(ModeProfile::Configured),
            };
        }
        EffectClass::Edit | EffectClass::NetworkCommand | EffectClass::Unknown => false,
    };
    match coverage {
        Coverage::Granted | Coverage::Uncovered if runs => {
            ModeDecision::Allow(ModeProfile::ReadOnly)
        }
        Coverage::AskedByRule if runs => ModeDecision::Ask(ModeProfile::ReadOnly),
        _ => ModeDecision::Deny,
    }
}

/// Profile in which `ask`, `edits` or `auto` allows an effect that no rule or grant decides about.
/// `None`: it is asked about.
fn uncovered(
    mode: PermissionMode,
    class: EffectClass,
    confinement: CommandConfinement,
) -> Option<ModeProfile> {
    let edits = matches!(mode, PermissionMode::Edits | PermissionMode::Auto);
    let auto = mode == PermissionMode::Auto;
    match class {
        EffectClass::Read => Some(ModeProfile::ReadOnly),
        EffectClass::ReadingCommand => is_safe(confinement).then_some(ModeProfile::ReadOnly),
        EffectClass::Edit => edits.then_some(ModeProfile::Workspace),
        EffectClass::FileCommand => {
            (edits && is_safe(confinement)).then_some(ModeProfile::Workspace)
        }
        EffectClass::Command | EffectClass::RestorableDeletion => {
            (auto && is_safe(confinement)).then_some(ModeProfile::Workspace)
        }
        EffectClass::Agent => auto.then_some(ModeProfile::Configured),
        EffectClass::Destruction
        | EffectClass::NetworkCommand
        | EffectClass::ForeignAgent
        | EffectClass::Unknown => None,
    }
}

/// True if commands are confined and cannot read secret files.
fn is_safe(confinement: CommandConfinement) -> bool {
    matches!(confinement, CommandConfinement::Full | CommandConfinement::Reduced)
}

#[cfg(test)]
mod tests;
