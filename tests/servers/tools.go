//go:build tools

// Package servers pins the real servers that the tests start.
package servers

import _ "github.com/influxdata/influxdb/v2/cmd/influxd"
