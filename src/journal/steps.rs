//! Points at which a test can end the process, to simulate a kill between two steps.

/// Reports every step of writing and repairing a journal to the listener of a test. Does nothing
/// outside of tests.
#[derive(Clone, Default)]
pub(crate) struct Steps {
    #[cfg(test)]
    pub(crate) listener: Option<std::sync::Arc<dyn Fn(&'static str) + Send + Sync>>,
}

impl Steps {
    /// Reports that the step `name` is done.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "used only by tests"))]
    pub(crate) fn step_done(&self, name: &'static str) {
        #[cfg(test)]
        if let Some(listener) = &self.listener {
            listener(name);
        }
        #[cfg(not(test))]
        let _ = name;
    }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Steps")
    }
}
