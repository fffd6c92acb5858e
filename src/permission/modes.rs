//! Permission modes in the policy: the class of an action, and the verdict of the mode about it.
//! The decision itself is [`decide`] of the kernel.

use std::path::Path;

use posse_actors::event::{PermissionMode, SandboxTier};
use posse_actors::ports::{
    Access, Action, Caller, CommandConfinement, CommandDeletions, Confinement, Coverage,
    EffectClass, ModeDecision, ModeProfile, NEEDS_NETWORK, NetworkAccess, Operation,
    PermissionQuestion, Situation, Verdict, decide,
};
use posse_base::failure::printable;
use posse_base::protected::is_protected_in;
use posse_base::secrets::is_secret;

use crate::commands::{Uncovered, missing_text, only_reads};
use crate::shell::allow::PlainCommand;
use crate::shell::effects::{Hazards, hazards, moves_files};
use crate::shell::options::Reading;
use crate::shell::{Judged, Names, quoted};
use crate::{
    JudgedAction, PolicySettings, RulePolicy, SandboxMode, command_deletions, command_outputs, deny,
};

/// Class of an action, with the reason why modes treat it with care.
struct Classified {
    class: EffectClass,
    /// `None`: the class itself says it.
    reason: Option<String>,
}

impl From<EffectClass> for Classified {
    fn from(class: EffectClass) -> Classified {
        Classified { class, reason: None }
    }
}

/// Mode in which `action` is judged while the session is in `mode`: a command in a trial changes
/// nothing, so it is judged as in the mode `plan`. The mode `locked` stays, because only rules and
/// grants allow commands in it.
pub(super) fn of_action(action: &Action, mode: PermissionMode) -> PermissionMode {
    let is_locked = mode == PermissionMode::Locked;
    if action.is_trial() && !is_locked { PermissionMode::Plan } else { mode }
}

impl RulePolicy {
    /// Applies the permission mode to `verdict`, which rules, grants and built-in decisions gave,
    /// with this `coverage`.
    pub(super) fn in_mode(
        &self,
        case: &JudgedAction<'_>,
        coverage: Coverage,
        verdict: Verdict,
    ) -> Verdict {
        let mode = self.mode_in_force(case.situation);
        let judged = self.in_mode_of(mode, case, coverage, verdict.clone());
        // The mode is there for the model. A person is asked about effects of their own calls.
        let is_own = case.situation.caller == Caller::User && !case.action.is_trial();
        if is_own && mode == PermissionMode::Plan && matches!(judged, Verdict::Deny { .. }) {
            return self.in_mode_of(PermissionMode::Ask, case, coverage, verdict);
        }
        judged
    }

    fn in_mode_of(
        &self,
        mode: PermissionMode,
        case: &JudgedAction<'_>,
        coverage: Coverage,
        verdict: Verdict,
    ) -> Verdict {
        let Classified { class, reason } = self.classified(case);
        let confinement = self.command_confinement(case.situation);
        match (decide(mode, class, coverage, confinement), verdict) {
            (_, denied @ Verdict::Deny { .. }) => denied,
            (ModeDecision::Allow(ModeProfile::Configured), Verdict::Allow(confinement)) => {
                Verdict::Allow(confinement)
            }
            (ModeDecision::Allow(profile), _) => {
                Verdict::Allow(self.confinement_in(profile, case.situation))
            }
            // Nothing can be confined to reading without a sandbox, so the question says what is.
            (ModeDecision::Ask(ModeProfile::ReadOnly), Verdict::Ask(question))
                if confinement == CommandConfinement::None && !case.scripts.is_empty() =>
            {
                Verdict::Ask(question)
            }
            (ModeDecision::Ask(profile), Verdict::Ask(mut question)) => {
                if coverage == Coverage::Uncovered
                    && let Some(missing) = self.needing_an_answer(mode, case)
                {
                    let rule = question.rule;
                    question = PermissionQuestion { rule, ..self.question_about(case, &missing) };
                }
                let is_free = matches!(mode, PermissionMode::Edits | PermissionMode::Auto);
                let not_covered = not_covered(mode, class, case.action);
                let reason = match reason.filter(|_| is_free && coverage == Coverage::Uncovered) {
                    Some(reason) => format!("{reason}{not_covered}; {}", question.reason),
                    None => question.reason,
                };
                let confinement = match profile {
                    ModeProfile::Configured => question.confinement,
                    profile => self.confinement_in(profile, case.situation),
                };
                Verdict::Ask(PermissionQuestion { reason, confinement, ..question })
            }
            // Nothing is asked about that has no question.
            (ModeDecision::Ask(_), Verdict::Allow(_)) | (ModeDecision::Deny, _) => {
                let why = if mode == PermissionMode::Locked {
                    self.denial_in_locked(case)
                } else {
                    denial(mode, class, confinement, reason.as_deref())
                };
                let why = if mode == PermissionMode::Plan && case.action.is_trial() {
                    format!("a dry run is judged as in the mode plan: {why}")
                } else {
                    why
                };
                deny(&format!("permission mode: {mode}"), &why)
            }
        }
    }

    /// Reason of a denial in the mode `locked`: the parts of commands that no rule or grant covers, or
    /// the action.
    fn denial_in_locked(&self, case: &JudgedAction<'_>) -> String {
        let missing = if case.scripts.is_empty() {
            format!("no rule or grant allows to {}", case.action.summary)
        } else {
            missing_text(&self.uncovered(case))
        };
        format!(
            "the permission mode is locked, and no user is asked: {missing}. Work without it, or tell \
             the user which rule is missing"
        )
    }

    /// The parts of the commands that `mode` does not allow by themselves. `None` if these are all
    /// uncovered parts, none of them, or not the reason for the question.
    pub(super) fn needing_an_answer<'a>(
        &self,
        mode: PermissionMode,
        case: &'a JudgedAction<'_>,
    ) -> Option<Vec<Uncovered<'a>>> {
        let [operation @ Operation::Execute { .. }] = case.action.operations.as_slice() else {
            return None;
        };
        let is_free = |part: &PlainCommand| {
            let plain = part.literal && part.acts.is_none() && part.barred.is_none();
            plain && self.is_allowed_alone(mode, case, operation, part)
        };
        let mut missing = self.uncovered(case);
        let before = missing.len();
        missing.retain(|uncovered| !uncovered.part.is_some_and(is_free));
        (!missing.is_empty() && missing.len() < before).then_some(missing)
    }

    /// True if `mode` allows the part `part` of the command `operation` as a command of its own.
    fn is_allowed_alone(
        &self,
        mode: PermissionMode,
        case: &JudgedAction<'_>,
        operation: &Operation,
        part: &PlainCommand,
    ) -> bool {
        let mut operation = operation.clone();
        let Operation::Execute { command, cwd, links, replaces, deletions, .. } = &mut operation
        else {
            return false;
        };
        *command = quoted(&part.words);
        *deletions = CommandDeletions::default();
        let home = self.settings.home.as_deref();
        // `replaces` does not tell which part replaces a file.
        if !replaces.is_empty() && !command_outputs(command, cwd, home, links).is_empty() {
            return false;
        }
        replaces.clear();
        let action = Action { operations: vec![operation], ..case.action.clone() };
        let alone = self.judged_action(&action, case.situation, case.mode_reads);
        let class = self.classified(&alone).class;
        let confinement = self.command_confinement(case.situation);
        matches!(decide(mode, class, Coverage::Uncovered, confinement), ModeDecision::Allow(_))
    }

    /// Restriction of `mode` on this machine, in words; `None` if it means what it says.
    pub(super) fn restriction_of(
        &self,
        mode: PermissionMode,
        tier: &SandboxTier,
    ) -> Option<String> {
        let confinement = self.confinement_at(tier);
        let no_sandbox = "there is no sandbox";
        let secrets = "commands could read the project's secret files, which the sandbox cannot \
                       hide here";
        let text = match (mode, confinement) {
            (PermissionMode::Auto, CommandConfinement::None) => {
                format!("{no_sandbox}: it means edits, and every command needs approval")
            }
            (PermissionMode::Auto, CommandConfinement::Full | CommandConfinement::Reduced) => {
                let reason = self.settings.no_checkpoints.as_ref()?;
                format!("changes cannot be undone, because {reason}: it means edits")
            }
            (PermissionMode::Edits, CommandConfinement::None) => {
                format!("{no_sandbox}: every command needs approval")
            }
            (
                PermissionMode::Auto | PermissionMode::Edits,
                CommandConfinement::ReducedWithSecrets,
            ) => format!("{secrets}: every command needs approval"),
            (PermissionMode::Plan, CommandConfinement::None) => {
                format!(
                    "{no_sandbox}: commands that are known to read need approval, and no other \
                     command runs"
                )
            }
            (PermissionMode::Plan, CommandConfinement::ReducedWithSecrets) => format!(
                "{secrets}: commands that are known to read need approval, and no other command \
                 runs"
            ),
            (PermissionMode::Plan, CommandConfinement::Reduced) => {
                "the sandbox tier is not full: only commands that are known to read run".to_owned()
            }
            _ => return None,
        };
        Some(format!("permission mode {mode}: {text}"))
    }

    /// True if the mode of `situation` allows commands that only read.
    pub(super) fn mode_reads(&self, situation: &Situation<'_>) -> bool {
        let confinement = self.command_confinement(situation);
        let mode = self.mode_in_force(situation);
        let decision = decide(mode, EffectClass::ReadingCommand, Coverage::Uncovered, confinement);
        matches!(decision, ModeDecision::Allow(_))
    }

    /// The mode of `situation`, or `edits` instead of `auto` where no checkpoints are made.
    fn mode_in_force(&self, situation: &Situation<'_>) -> PermissionMode {
        match situation.mode {
            PermissionMode::Auto if self.settings.no_checkpoints.is_some() => PermissionMode::Edits,
            mode => mode,
        }
    }

    fn command_confinement(&self, situation: &Situation<'_>) -> CommandConfinement {
        self.confinement_at(situation.tier)
    }

    fn confinement_at(&self, tier: &SandboxTier) -> CommandConfinement {
        match tier {
            _ if self.settings.sandbox == SandboxMode::Off => CommandConfinement::None,
            SandboxTier::Full => CommandConfinement::Full,
            SandboxTier::Reduced if self.settings.secrets_in_reach => {
                CommandConfinement::ReducedWithSecrets
            }
            SandboxTier::Reduced => CommandConfinement::Reduced,
            SandboxTier::None | SandboxTier::Unknown(_) => CommandConfinement::None,
        }
    }

    fn confinement_in(&self, profile: ModeProfile, situation: &Situation<'_>) -> Confinement {
        let configured = self.confinement(situation);
        match profile {
            ModeProfile::Configured => configured,
            ModeProfile::Workspace => {
                let network = if self.asks_by_domain(situation) {
                    NetworkAccess::Domains
                } else {
                    NetworkAccess::Denied
                };
                Confinement { network, ..configured }
            }
            ModeProfile::ReadOnly => Confinement {
                profile: SandboxMode::ReadOnly.name().into(),
                writable_roots: Vec::new(),
                network: NetworkAccess::Denied,
            },
        }
    }

    /// True if a command that the mode allows by itself reaches domains through the proxy, so that
    /// a new domain is the question.
    fn asks_by_domain(&self, situation: &Situation<'_>) -> bool {
        self.mode_in_force(situation) == PermissionMode::Auto
            && self.command_confinement(situation) == CommandConfinement::Full
            && self.confinement(situation).network == NetworkAccess::Domains
    }

    fn classified(&self, case: &JudgedAction<'_>) -> Classified {
        if case.is_read() {
            return EffectClass::Read.into();
        }
        let operations = case.action.operations.as_slice();
        if let [Operation::Invoke { provider, .. }] = operations {
            let is_own = *provider == self.settings.provider;
            return if is_own { EffectClass::Agent } else { EffectClass::ForeignAgent }.into();
        }
        let is_file =
            |one: &Operation| matches!(one, Operation::Read { .. } | Operation::Write { .. });
        match case.access() {
            Access::Write if !operations.is_empty() && operations.iter().all(is_file) => {
                EffectClass::Edit.into()
            }
            Access::Process if !case.scripts.is_empty() => {
                command_class(case, self.asks_by_domain(case.situation), &self.settings)
            }
            _ => EffectClass::Unknown.into(),
        }
    }
}

/// Class of the commands of an action: that of the one with the widest effects. `by_domain`: the
/// proxy asks about the domains that they reach.
fn command_class(
    case: &JudgedAction<'_>,
    by_domain: bool,
    settings: &PolicySettings,
) -> Classified {
    if only_reads(case) && case.scripts.iter().all(Judged::is_read_alike) {
        return EffectClass::ReadingCommand.into();
    }
    let hazards: Vec<Hazards> =
        case.scripts.iter().map(|script| hazards(&script.findings)).collect();
    let sends = hazards.iter().find_map(|hazards| hazards.sends.as_ref());
    let fetches = hazards.iter().find_map(|hazards| hazards.fetches.as_ref());
    if let Some(program) = sends.or_else(|| fetches.filter(|_| !by_domain)) {
        let ignores_proxy = by_domain && NO_PROXY.has(program);
        let without = if ignores_proxy { IGNORES_PROXY } else { "" };
        let reason = Some(format!("`{}` {NEEDS_NETWORK}{without}", printable(program)));
        return Classified { class: EffectClass::NetworkCommand, reason };
    }
    if let Some(reason) = destruction(case, &hazards, settings) {
        let reason = Some(printable(&reason));
        return Classified { class: EffectClass::Destruction, reason };
    }
    let restorable = hazards.iter().find_map(|hazards| hazards.destroys.clone());
    if let Some(reason) = restorable.or_else(|| replaced(case).map(replacing)) {
        let reason = Some(printable(&reason));
        return Classified { class: EffectClass::RestorableDeletion, reason };
    }
    // A program that runs what the project configures must not do so where it can write.
    let is_known = |part: &PlainCommand| part.creates || part.reading == Reading::Plain;
    let is_plain = |script: &Judged| {
        script.outside.is_none() && !script.parts.is_empty() && script.parts.iter().all(is_known)
    };
    let only_files = case.scripts.iter().all(|script| is_plain(script) && script.is_read_alike());
    if only_files { EffectClass::FileCommand } else { EffectClass::Command }.into()
}

/// Programs that ignore the variables of the proxy.
const NO_PROXY: Names = Names(
    "dig ftp host mosh nc ncat netcat nmap nslookup ping rsh rsync scp sftp ssh telnet tracepath traceroute whois",
);
const IGNORES_PROXY: &str = ", and ignores the proxy of the sandbox: also after a yes it reaches nothing without \
                             settings of its own (see the guide to the network)";

/// Words after the reason for a question in `auto` about a deletion of files that the words name:
/// checkpoints cover most of these. Other modes ask about covered ones, too.
fn not_covered(mode: PermissionMode, class: EffectClass, action: &Action) -> &'static str {
    let names_files = action.operations.iter().any(|operation| {
        matches!(operation, Operation::Execute { deletions, .. } if !deletions.paths.is_empty())
    });
    let asks_for_it =
        mode == PermissionMode::Auto && class == EffectClass::Destruction && names_files;
    if asks_for_it { UNCOVERED_FILES } else { "" }
}

const UNCOVERED_FILES: &str = ", and checkpoints cannot bring back all of these files (`posse help checkpoints` \
                               lists which)";

/// Reason why the commands are [`EffectClass::Destruction`]; `None` if they are not known to delete,
/// overwrite or discard, or only delete or replace files that a checkpoint can bring back.
fn destruction(
    case: &JudgedAction<'_>,
    hazards: &[Hazards],
    settings: &PolicySettings,
) -> Option<String> {
    let destroys = hazards.iter().find_map(|hazards| hazards.destroys.clone());
    let destroys = destroys.filter(|_| !is_restorable(case, settings));
    let is_covered = match case.action.operations.as_slice() {
        [Operation::Execute { replaces, deletions, .. }] => {
            // A file that is moved over another one loses its own name.
            deletions.replaced_are_restorable
                && !case.scripts.iter().any(|script| moves_files(&script.findings))
                && deletions.replaced == *replaces
                && replaces.iter().all(|path| is_plain(path, settings))
        }
        _ => false,
    };
    let replaced = || replaced(case).filter(|_| !is_covered).map(replacing);
    let doubtful = || {
        let is_doubtful = case.scripts.iter().any(|script| script.doubtful);
        is_doubtful.then(|| "it can be read in more than one way".to_owned())
    };
    let moved_out = || case.scripts.iter().find_map(|script| script.moved_out.clone());
    destroys.or_else(moved_out).or_else(replaced).or_else(doubtful)
}

/// The first existing file that a command of the action replaces.
fn replaced<'a>(case: &JudgedAction<'a>) -> Option<&'a str> {
    case.action.operations.iter().find_map(|operation| match operation {
        Operation::Execute { replaces, .. } => replaces.first().map(String::as_str),
        _ => None,
    })
}

/// Reason for care with a command that replaces the file at `path`.
fn replacing(path: &str) -> String {
    match path {
        // The path of a command whose destinations are too many, or not told by its words.
        "/" => "it may replace files that its words do not name".to_owned(),
        path => format!("it would replace {path}"),
    }
}

/// True if the absolute `path` is below a root, and its name is not that of a protected or secret
/// file.
fn is_plain(path: &str, settings: &PolicySettings) -> bool {
    settings.roots.iter().any(|root| {
        let relative = path.strip_prefix(root.as_str()).and_then(|rest| rest.strip_prefix('/'));
        relative.is_some_and(|relative| {
            !is_protected_in(Path::new(root), relative) && !is_secret(relative)
        })
    })
}

/// True if the action is one command that deletes exactly the files which a checkpoint can bring
/// back, none of them by the name of a protected or secret file, and destroys nothing else.
///
/// The words are read again: what was found when the call was prepared must be what they say.
fn is_restorable(case: &JudgedAction<'_>, settings: &PolicySettings) -> bool {
    let [Operation::Execute { command, cwd, deletions, .. }] = case.action.operations.as_slice()
    else {
        return false;
    };
    deletions.are_restorable
        && !deletions.paths.is_empty()
        && deletions.paths.iter().all(|path| is_plain(path, settings))
        && command_deletions(command, cwd, settings.home.as_deref()).as_ref()
            == Some(&deletions.paths)
}

/// Reason of a denial for the model. It says what the model can do instead.
fn denial(
    mode: PermissionMode,
    class: EffectClass,
    confinement: CommandConfinement,
    reason: Option<&str>,
) -> String {
    let is_command = matches!(
        class,
        EffectClass::ReadingCommand
            | EffectClass::FileCommand
            | EffectClass::Command
            | EffectClass::Destruction
            | EffectClass::RestorableDeletion
            | EffectClass::NetworkCommand
    );
    let why = match (is_command, confinement) {
        (true, _) if class == EffectClass::NetworkCommand => {
            format!("commands have no network: {}", reason.unwrap_or("it needs the network"))
        }
        (true, CommandConfinement::Full) => {
            "nothing is asked, and this would need an answer".to_owned()
        }
        (true, _) => "without a full sandbox only commands that are known to read run".to_owned(),
        (false, _) => "nothing is changed".to_owned(),
    };
    format!(
        "the permission mode is {mode}: {why}. Read, search and describe the change, in a plan if you \
         have the tool present_plan; only the user can leave this mode"
    )
}
