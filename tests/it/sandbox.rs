//! Actions that a confined command must not be able to do, each with a twin that must work.
//!
//! A row is a script that prints `DONE` on success. Under confinement it must end without that, and
//! leave the host unchanged. Without confinement it must print it: a row with a broken script fails
//! there.

mod calls;
mod control;
mod differential;
mod everyday;
mod network;
mod processes;
mod secret;
mod world;
mod writes;

use posse::sandbox::Backend;

use world::SandboxFixture;

/// Tiers on which a row must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tiers {
    Both,
    /// Not promised by the reduced tier.
    Full,
}

/// Place of the twin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Twin {
    /// The same confinement.
    Inside,
    /// The same confinement with the network.
    Network,
    /// Unconfined: for actions that are forbidden everywhere.
    Unconfined,
}

/// Proof that a row holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// The script fails, and the outside is unchanged.
    Denied,
    /// Its effect is limited to itself: nothing is on the host.
    Nowhere,
    /// Afterwards nothing is planted, and protected files are unchanged.
    Undone,
    /// Its output contains no secret.
    Silent,
}

/// An escape attempt and its twin.
#[derive(Debug, Clone, Copy)]
struct SandboxCase {
    name: &'static str,
    tiers: Tiers,
    proof: Proof,
    /// The action, using variables of the next two.
    script: &'static str,
    forbidden: &'static str,
    allowed: &'static str,
    twin: Twin,
}

fn tables() -> Vec<(&'static str, Vec<SandboxCase>)> {
    vec![
        ("writes", writes::rows()),
        ("control", control::rows()),
        ("secret", secret::rows()),
        ("network", network::rows()),
        ("calls", calls::rows()),
        ("processes", processes::rows()),
    ]
}

/// Runs every row of a table on every tier; reports all that do not hold.
async fn hold(table: &str, part: usize, parts: usize) {
    let (_, rows) = tables().into_iter().find(|(name, _)| *name == table).unwrap();
    let mut failures = Vec::new();
    let mut world = SandboxFixture::new();
    for row in rows.iter().skip(part).step_by(parts) {
        for backend in [Backend::Namespaces, Backend::Landlock] {
            if backend == Backend::Landlock && row.tiers == Tiers::Full {
                continue;
            }
            if let Err(failure) = check(&mut world, row, backend).await {
                failures.push(format!("{table}: {} on {}: {failure}", row.name, backend.as_str()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

async fn check(
    world: &mut SandboxFixture,
    row: &SandboxCase,
    backend: Backend,
) -> Result<(), String> {
    world.reset();
    let before = world.outside();
    let script = format!("{}\n{}\necho TRIED\n", row.forbidden, row.script);
    let ran = world.run(backend, false, &script).await?;
    if !ran.text.contains("TRIED") && !ran.was_killed {
        return Err(format!("the forbidden script did not come to its end: {}", ran.text));
    }
    let is_done = ran.text.lines().any(|line| line == "DONE");
    if is_done && row.proof == Proof::Denied {
        return Err(format!("it was possible: {}", ran.text));
    }
    if row.proof == Proof::Silent && ran.text.contains(world::SECRET) {
        return Err(format!("a secret was read: {}", ran.text));
    }
    world.check_host(&before)?;
    let planted = world.planted();
    if !planted.is_empty() {
        return Err(format!("{planted:?} after {}; found {:?}", ran.text, ran.findings));
    }
    if row.twin == Twin::Unconfined && !nix::unistd::geteuid().is_root() {
        // The counterpart needs root: the kernel refuses the operation to ordinary users anywhere.
        return Ok(());
    }
    let (backend, network) = match row.twin {
        Twin::Inside => (backend, false),
        Twin::Network => (backend, true),
        Twin::Unconfined => (Backend::Nothing, true),
    };
    world.reset();
    let script = format!("{}\n{}\necho TRIED\n", row.allowed, row.script);
    let ran = world.run(backend, network, &script).await?;
    if !ran.text.lines().any(|line| line == "DONE") {
        return Err(format!("the twin does not work: {} {:?}", ran.text, ran.findings));
    }
    if row.twin != Twin::Unconfined && !ran.findings.is_empty() {
        return Err(format!("the twin was found guilty: {:?}", ran.findings));
    }
    Ok(())
}

/// The other mechanism of the full tier. It mounts in another order, so all secrets are tried; of the
/// rest, where the kernel features are the same, every fifth row suffices.
#[tokio::test]
async fn bubblewrap_passes_the_corpus() {
    let mut failures = Vec::new();
    let mut world = SandboxFixture::new();
    for (table, rows) in tables() {
        for row in rows.iter().step_by(if table == "secret" { 1 } else { 5 }) {
            if let Err(failure) = check(&mut world, row, Backend::Bubblewrap).await {
                failures.push(format!("{table}: {}: {failure}", row.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn corpus_has_enough_uniquely_named_rows() {
    let tables = tables();
    let rows: Vec<SandboxCase> = tables.iter().flat_map(|(_, rows)| rows.clone()).collect();
    let mut names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    let both = rows.iter().filter(|row| row.tiers == Tiers::Both).count();
    assert!(both >= 120, "{both} rows hold on both tiers, {count} in all");
}

#[tokio::test]
async fn writes_outside_are_denied() {
    hold("writes", 0, 2).await;
}

#[tokio::test]
async fn writes_outside_are_denied_in_other_ways() {
    hold("writes", 1, 2).await;
}

#[tokio::test]
async fn no_protected_file_is_written() {
    hold("control", 0, 2).await;
}

#[tokio::test]
async fn no_protected_file_is_written_in_other_ways() {
    hold("control", 1, 2).await;
}

#[tokio::test]
async fn secrets_are_not_read() {
    hold("secret", 0, 1).await;
}

#[tokio::test]
async fn no_network_peer_is_reached() {
    hold("network", 0, 1).await;
}

#[tokio::test]
async fn forbidden_system_calls_are_refused() {
    hold("calls", 0, 2).await;
}

#[tokio::test]
async fn remaining_system_calls_are_refused() {
    hold("calls", 1, 2).await;
}

#[tokio::test]
async fn nothing_outlives_its_command() {
    hold("processes", 0, 1).await;
}
