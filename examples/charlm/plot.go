package main

import (
	"fmt"
	"image/color"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// curve is one line of a plot.
type curve struct {
	name   string
	points plotter.XYs
	color  int
	dashed bool
}

// level is a horizontal line to compare curves with.
type level struct {
	name  string
	value float64
}

// wideRange is the ratio of the largest to the smallest value from which an axis
// counts in powers of ten.
const wideRange = 30

// drawPlot writes a PNG of positive values. Levels are dotted.
func drawPlot(file, title, yLabel string, curves []curve, levels []level) error {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = "step"
	p.Y.Label.Text = yLabel
	p.Legend.Top = true
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(-6), vg.Points(-6)
	p.Legend.Padding = vg.Points(3)
	p.Add(plotter.NewGrid())
	for _, c := range curves {
		if len(c.points) == 0 {
			return fmt.Errorf("plot %s: curve %q has no points", filepath.Base(file), c.name)
		}
		line, err := plotter.NewLine(c.points)
		if err != nil {
			return fmt.Errorf("plot %s: curve %q: %w", filepath.Base(file), c.name, err)
		}
		line.Color = plotutil.Color(c.color)
		line.Width = vg.Points(1.5)
		if c.dashed {
			line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		}
		p.Add(line)
		p.Legend.Add(c.name, line)
	}
	for i, l := range levels {
		at := l.value
		f := plotter.NewFunction(func(float64) float64 { return at })
		f.Color = color.Gray{Y: uint8(60 + 60*i)}
		f.Dashes = []vg.Length{vg.Points(1), vg.Points(2)}
		p.Add(f)
		p.Legend.Add(l.name, f)
		p.Y.Min, p.Y.Max = min(p.Y.Min, at), max(p.Y.Max, at)
	}
	// Room around the curves, also around one that is constant.
	p.Y.Min, p.Y.Max = p.Y.Min/1.1, p.Y.Max*1.1
	if p.Y.Max > wideRange*p.Y.Min {
		p.Y.Max *= 20 // for the legend
		p.Y.Scale = plot.LogScale{}
		p.Y.Tick.Marker = plot.LogTicks{Prec: -1}
	}
	return p.Save(7*vg.Inch, 4.5*vg.Inch, file)
}
