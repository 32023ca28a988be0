// Package sim is
package sim
