//! Conversations between actors, played with stand-ins for the world.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may unwrap")]

/// What holds for every session, and a hand that plays the user.
mod support;

/// Many questions and many who answer them.
mod answers;
/// Stopping, wherever a run is.
mod cancelling;
/// Checkpoints before effects, and the states after runs.
mod checkpoints;
/// Histories that become too large.
mod compaction;
mod connections;
/// A panic in each actor at each kind of message.
mod crashes;
// Agents that work for others.
mod delegation;
/// Hooks at their ten places.
mod hooks;
/// Permission requests whose hunks are answered one by one.
mod hunks;
/// A journal that fails or is slow.
mod journal;
/// What requests cost, and a budget.
mod ledger;
/// Observers: order, loss, ends.
mod observers;
/// Tools that the user runs themselves.
mod own_calls;
/// Changes of the permission mode.
mod permission_mode;
/// Questions and answers.
mod permissions;
/// Attempts, waits and broken replies.
mod provider;
/// What this design relies on in ractor.
mod ractor_facts;
/// Sessions that go on from their journal.
mod resuming;
/// Messages that arrive during a run.
mod steering;
/// Providers that are away: waiting, parking, and others that take over.
mod survival;
/// Titles of sessions.
mod titles;
/// Trials of calls before the answer to a permission request.
mod trials;
/// One prompt, from the user to the answer.
mod turns;
/// Questions and plans of the model.
mod user_requests;
