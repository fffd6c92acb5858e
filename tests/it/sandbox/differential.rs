//! The model of the policy and the kernel say the same.
