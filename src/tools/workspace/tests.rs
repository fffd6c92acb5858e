//! What can be reached, and what cannot.
