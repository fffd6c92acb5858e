//! Hooks against a real sandbox are tested with the whole program; this is what needs none.
