//! Places where a test may end the process: between what must not be interrupted and is.

/// Told of every step that writing and repairing reach. Outside tests nobody listens.
#[derive(Clone, Default)]
pub(crate) struct Steps {
    #[cfg(test)]
    pub(crate) listener: Option<std::sync::Arc<dyn Fn(&'static str) + Send + Sync>>,
}

impl Steps {
    /// The step called `name` is done.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "only tests listen"))]
    pub(crate) fn reached(&self, name: &'static str) {
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
