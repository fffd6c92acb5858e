//! Every mode, class, coverage and confinement: a table, and the properties of the whole.

use super::*;
use crate::ports::mode_decision::{
    CommandConfinement as Confined, Coverage as By, EffectClass as Class,
};

const CLASSES: [Class; 11] = [
    Class::Read,
    Class::ReadingCommand,
    Class::Edit,
    Class::FileCommand,
    Class::Command,
    Class::Destruction,
    Class::RestorableDeletion,
    Class::NetworkCommand,
    Class::Agent,
    Class::ForeignAgent,
    Class::Unknown,
];
const COVERAGES: [By; 5] =
    [By::Denied, By::AskedEachTime, By::AskedByRule, By::Granted, By::Uncovered];
const CONFINEMENTS: [Confined; 4] =
    [Confined::Full, Confined::Reduced, Confined::ReducedWithSecrets, Confined::None];

/// `-` denied, `?` asked, `r` read-only, `w` in the workspace, `c` as configured; a question in the
/// read-only profile is `R`.
fn letter(decision: ModeDecision) -> char {
    match decision {
        ModeDecision::Deny => '-',
        ModeDecision::Ask(ModeProfile::ReadOnly) => 'R',
        ModeDecision::Ask(_) => '?',
        ModeDecision::Allow(ModeProfile::ReadOnly) => 'r',
        ModeDecision::Allow(ModeProfile::Workspace) => 'w',
        ModeDecision::Allow(ModeProfile::Configured) => 'c',
    }
}

/// Decisions of the modes plan, ask, edits, auto and locked, on the full tier, the reduced one, the
/// reduced one with secrets, and without a sandbox.
fn row(class: Class, coverage: By) -> String {
    let cells = CONFINEMENTS.map(|confinement| {
        let modes = PermissionMode::KNOWN;
        let letters = modes.map(|mode| letter(decide(mode, class, coverage, confinement)));
        letters.iter().collect::<String>()
    });
    cells.join(" ")
}

#[test]
fn decisions_without_rules_and_grants() {
    //                              full  reduced secrets none
    for (class, expected) in [
        (Class::Read, "rrrrr rrrrr rrrrr rrrrr"),
        (Class::ReadingCommand, "rrrr- rrrr- R???- R???-"),
        (Class::Edit, "-?ww- -?ww- -?ww- -?ww-"),
        (Class::FileCommand, "r?ww- -?ww- -???- -???-"),
        (Class::Command, "r??w- -??w- -???- -???-"),
        (Class::Destruction, "r???- -???- -???- -???-"),
        (Class::RestorableDeletion, "r??w- -??w- -???- -???-"),
        (Class::NetworkCommand, "-???- -???- -???- -???-"),
        (Class::Agent, "???c- ???c- ???c- ???c-"),
        (Class::ForeignAgent, "????- ????- ????- ????-"),
        (Class::Unknown, "-???- -???- -???- -???-"),
    ] {
        assert_eq!(row(class, By::Uncovered), expected, "{class:?}");
    }
}

#[test]
fn decisions_with_a_grant() {
    for (class, expected) in [
        (Class::Read, "rcccc rcccc rcccc rcccc"),
        (Class::ReadingCommand, "rcccc rcccc rcccc rcccc"),
        (Class::Edit, "-cccc -cccc -cccc -cccc"),
        (Class::FileCommand, "rcccc -cccc -cccc -cccc"),
        (Class::Command, "rcccc -cccc -cccc -cccc"),
        (Class::Destruction, "rcccc -cccc -cccc -cccc"),
        (Class::RestorableDeletion, "rcccc -cccc -cccc -cccc"),
        (Class::NetworkCommand, "-cccc -cccc -cccc -cccc"),
        (Class::Agent, "ccccc ccccc ccccc ccccc"),
        (Class::ForeignAgent, "ccccc ccccc ccccc ccccc"),
        (Class::Unknown, "-cccc -cccc -cccc -cccc"),
    ] {
        assert_eq!(row(class, By::Granted), expected, "{class:?}");
    }
}

#[test]
fn what_stands_above_modes_is_never_allowed_by_one() {
    for class in CLASSES {
        assert_eq!(row(class, By::Denied), "----- ----- ----- -----", "{class:?}");
        let agent = matches!(class, Class::Agent | Class::ForeignAgent);
        let each_time = if agent { "????- ????- ????- ????-" } else { "-???- -???- -???- -???-" };
        assert_eq!(row(class, By::AskedEachTime), each_time, "{class:?}");
    }
    for (class, expected) in [
        (Class::Read, "R???- R???- R???- R???-"),
        (Class::ReadingCommand, "R???- R???- R???- R???-"),
        (Class::Edit, "-???- -???- -???- -???-"),
        (Class::Command, "R???- -???- -???- -???-"),
    ] {
        assert_eq!(row(class, By::AskedByRule), expected, "{class:?}");
    }
}

/// Freedom of a decision as far as effects are concerned: nothing, reading, a question, an effect.
/// A question about reading is less than one about an effect.
fn freedom(decision: ModeDecision) -> u8 {
    match decision {
        ModeDecision::Deny => 0,
        ModeDecision::Ask(ModeProfile::ReadOnly) => 1,
        ModeDecision::Allow(ModeProfile::ReadOnly) => 2,
        ModeDecision::Ask(_) => 3,
        ModeDecision::Allow(_) => 4,
    }
}

#[test]
fn stricter_mode_never_allows_more() {
    for class in CLASSES {
        for coverage in COVERAGES {
            for confinement in CONFINEMENTS {
                let free = |mode| decide(mode, class, coverage, confinement);
                for one in PermissionMode::KNOWN {
                    for other in PermissionMode::KNOWN {
                        if one.is_at_most(other) {
                            let (less, more) = (free(one), free(other));
                            assert!(
                                freedom(less) <= freedom(more),
                                "{one} {other} {class:?} {coverage:?} {confinement:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn plan_changes_nothing_and_locked_asks_nothing() {
    for class in CLASSES {
        let agent = matches!(class, Class::Agent | Class::ForeignAgent);
        for coverage in COVERAGES {
            for confinement in CONFINEMENTS {
                let planned = decide(PermissionMode::Plan, class, coverage, confinement);
                assert!(freedom(planned) <= 2 || agent, "{class:?} {coverage:?} {confinement:?}");
                let locked = decide(PermissionMode::Locked, class, coverage, confinement);
                assert!(!matches!(locked, ModeDecision::Ask(_)), "{class:?} {coverage:?}");
                let by_itself = matches!(locked, ModeDecision::Allow(_)) && coverage != By::Granted;
                assert!(!by_itself || class == Class::Read, "{class:?} {coverage:?}");
            }
        }
    }
}

#[test]
fn weaker_confinement_never_allows_more_commands() {
    for mode in PermissionMode::KNOWN {
        for class in CLASSES {
            for coverage in COVERAGES {
                for pair in CONFINEMENTS.windows(2) {
                    let [stronger, weaker] = [pair[0], pair[1]]
                        .map(|confinement| decide(mode, class, coverage, confinement));
                    let allowed = |decision| matches!(decision, ModeDecision::Allow(_));
                    assert!(!allowed(weaker) || allowed(stronger), "{mode} {class:?} {pair:?}");
                }
            }
        }
    }
}
