"""Pictures of the dashboards, drawn from real traffic; a tool for developers."""
