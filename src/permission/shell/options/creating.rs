//! Programs that create, copy and move files. Source: the manual of coreutils 9.1.
//!
//! These entries are no part of the tables for grants: a permission mode that allows changes in the
//! workspace reads them. Left out: options that link, back up, follow links or name the destination
//! (`-t`), and modes and owners.

use super::{FILES, Spec, spec};

/// Programs with their harmless options and operands.
pub(super) static SPECS: &[Spec] = &[
    Spec {
        others: Some("--mode --context"),
        ..spec(&["mkdir"], FILES, &["-p -v --parents --verbose"])
    },
    Spec {
        others: Some("--date --reference --time --no-dereference"),
        ..spec(&["touch"], FILES, &["-a -c -m --no-create"])
    },
    spec(&["cp"], FILES, &["-a -n -p -r -R -v --archive --no-clobber --recursive --verbose"]),
    spec(&["mv"], FILES, &["-n -v --no-clobber --verbose"]),
];
