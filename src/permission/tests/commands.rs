//! Commands in the policy.
